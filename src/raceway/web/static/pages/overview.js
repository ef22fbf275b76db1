// @ts-check
import { get } from "../api.js";
import { RateChart, WireCard } from "../chart.js";
import { badge, bar, empty, facts, flagged, h, heading, replace, tile, topicLink } from "../dom.js";
import { bytes, count, duration, rate } from "../format.js";
import { Table } from "../table.js";

const KEPT = 300;
const TOPICS = 8;

/** @param {import("../app.js").View} view */
export async function show(view) {
  const [history, first] = await Promise.all([get("/api/history", {}, view.signal), get("/api/overview", {}, view.signal)]);
  /** @type {import("../chart.js").Sample[]} */
  const samples = history.samples;
  const wires = Object.keys(first.totals);
  const state = h("div", { class: "actions" });
  const trouble = h("div", { class: "notice bad", hidden: true, role: "alert" });
  const warnings = h("div", { class: "notice warn", hidden: true, role: "status" });
  const tiles = h("div", { class: "tiles" });
  const totals = h("div", {});
  const cards = wires.map((wire) => new WireCard(wire));
  const chart = new RateChart(wires, KEPT);
  const busiest = topicTable();

  /** @param {any} now */
  const update = (now) => {
    replace(state, badge(now.status.replace("_", " "), now.status === "ok" ? "good" : "bad"), h("span", { class: "soft" }, `version ${now.version}, up ${duration(now.uptime_s * 1e6)}`));
    trouble.hidden = now.status === "ok";
    trouble.textContent = `The bus is ${now.status.replace("_", " ")}. ${now.reason}`;
    warnings.hidden = now.warnings.length === 0;
    replace(warnings, ...now.warnings.map((/** @type {string} */ text) => h("div", {}, text)));
    replace(tiles, tile("stored", count(now.committed + 1)), tile("journal", bytes(now.journal_bytes)), tile("topics", count(now.topics)),
      tile("connected", count(now.peers)), tile("open requests", count(now.open_requests)), tile("errors", count(now.errors), now.errors > 0 ? "bad" : ""),
      tile("dead letters", count(now.dead_letters), now.dead_letters > 0 ? "warn" : ""),
      tile("blocked", count(now.blocked), now.blocked > 0 ? "bad" : ""));
    for (const card of cards) card.update(samples, now.rates[card.wire] ?? 0, `${count(now.totals[card.wire] ?? 0)} since start`);
    replace(totals, facts([
      ["Publishes", count(now.kinds.publish ?? 0)], ["Requests", count(now.kinds.request ?? 0)], ["Answers", count(now.kinds.response ?? 0)],
      ["Copies delivered", count(now.delivered)], ["Copies a second", rate(now.delivered_rate)], ["Payloads", bytes(now.bytes)], ["Subscriptions by name", count(now.subscriptions)],
      ["Queues", count(now.queues)], ["Undeliverable", count(now.undeliverable)],
    ]));
  };
  replace(view.root, heading("Overview", "Current traffic of the bus.", state), trouble, warnings, h("div", { class: "wires" }, cards.map((card) => card.element)), tiles,
    h("div", { class: "card" }, h("div", { class: "card-head" }, h("h2", {}, "Messages a second, by wire"), chart.legend), chart.drawing),
    h("div", { class: "cards uneven" }, h("div", { class: "card" }, h("h2", {}, "Busiest topics"), busiest.element), h("div", { class: "card" }, h("h2", {}, "Since start"), totals)));
  update(first);
  chart.update(samples);
  const topTopics = async () => busiest.update(withShares((await get("/api/topics", { order: "rate", limit: TOPICS }, view.signal)).topics));
  await topTopics();
  view.live((now) => {
    if (now.rates_us > (samples[samples.length - 1]?.time_us ?? 0)) {
      samples.push({ time_us: now.rates_us, wires: now.rates });
      if (samples.length > KEPT) samples.shift();
    }
    update(now);
    chart.update(samples);
  });
  view.live(topTopics, 2);
}

function topicTable() {
  return new Table([
    { title: "Topic", cell: (row) => topicLink(row.topic), fixed: true },
    { title: "", cell: (row) => bar(100 * row.share), class: "share" },
    { title: "Rate", number: true, cell: (row) => rate(row.rate) },
    { title: "Messages", number: true, cell: (row) => count(row.next - row.first) },
    { title: "Backlog", number: true, cell: (row) => flagged(row.backlog, "warn") },
  ], (row) => row.topic, empty("No topic yet", "Publish something: ", h("code", {}, "raceway pub baggage.events '{\"bag\": 17}'")), "Busiest topics");
}

/** How each compares with the busiest. @param {any[]} rows */
function withShares(rows) {
  const most = Math.max(...rows.map((row) => row.rate), 0);
  return rows.map((row) => ({ ...row, share: most ? row.rate / most : 0 }));
}
