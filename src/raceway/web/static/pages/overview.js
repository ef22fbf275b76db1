// @ts-check
import { get } from "../api.js";
import { RateChart } from "../chart.js";
import { empty, h, heading, replace, wireMark } from "../dom.js";
import { bytes, count, duration, rate } from "../format.js";
import { link } from "../route.js";
import { Table } from "../table.js";

const KEPT = 300;

/** @param {import("../app.js").View} view */
export async function show(view) {
  const [history, first] = await Promise.all([get("/api/history", {}, view.signal), get("/api/overview", {}, view.signal)]);
  /** @type {import("../chart.js").Sample[]} */
  const samples = history.samples;
  const wires = Object.keys(first.totals);
  const lead = h("p", { class: "lead" });
  const trouble = h("div", { class: "notice bad", hidden: true, role: "alert" });
  const tiles = h("div", { class: "tiles five" });
  const chart = new RateChart(wires, KEPT);
  const byWire = new Table([
    { title: "Wire", cell: (row) => wireMark(row.wire), fixed: true },
    { title: "Now", number: true, cell: (row) => rate(row.rate) },
    { title: "Since start", number: true, cell: (row) => count(row.total) },
  ], (row) => row.wire, empty("No wire"), "Messages by wire");
  const busiest = new Table([
    { title: "Topic", cell: (row) => h("a", { href: link("topics", row.topic) }, row.topic), fixed: true },
    { title: "Rate", number: true, cell: (row) => rate(row.rate) },
    { title: "Messages", number: true, cell: (row) => count(row.next - row.first) },
    { title: "Backlog", number: true, cell: (row) => count(row.backlog) },
  ], (row) => row.topic, empty("No topic yet", "Publish something: ", h("code", {}, "raceway pub baggage.events '{\"bag\": 17}'")), "Busiest topics");

  /** @param {any} now */
  const update = (now) => {
    lead.textContent = `Version ${now.version}, up ${duration(now.uptime_s * 1e6)}`;
    trouble.hidden = now.status === "ok";
    trouble.textContent = `The bus is ${now.status.replace("_", " ")}. ${now.reason}`;
    const sum = Object.values(/** @type {Record<string, number>} */ (now.rates)).reduce((total, each) => total + each, 0);
    replace(tiles, tile("messages in", rate(sum)), tile("copies out", rate(now.delivered_rate)), tile("stored", count(now.committed + 1)),
      tile("journal", bytes(now.journal_bytes)), tile("topics", count(now.topics)), tile("connected", count(now.peers)),
      tile("subscriptions", count(now.subscriptions)), tile("open requests", count(now.open_requests)),
      tile("errors", count(now.errors), now.errors > 0), tile("dead letters", count(now.dead_letters), now.dead_letters > 0));
    byWire.update(wires.map((wire) => ({ wire, rate: now.rates[wire] ?? 0, total: now.totals[wire] ?? 0 })));
  };
  replace(view.root, heading("Overview", ""), trouble, tiles, h("div", { class: "card" }, h("h2", {}, "Messages a second, by wire"), chart.element),
    h("div", { class: "cards" }, h("div", { class: "card" }, h("h2", {}, "Wires"), byWire.element), h("div", { class: "card" }, h("h2", {}, "Busiest topics"), busiest.element)));
  view.root.querySelector(".lead")?.replaceWith(lead);
  update(first);
  chart.update(samples);
  const topTopics = async () => busiest.update((await get("/api/topics", { order: "rate", limit: 8 }, view.signal)).topics);
  await topTopics();
  view.live((now) => {
    update(now);
    if (samples[samples.length - 1]?.time_us === now.time_us) return;
    samples.push({ time_us: now.time_us, wires: now.rates });
    if (samples.length > KEPT) samples.shift();
    chart.update(samples);
  });
  view.live(topTopics, 2000);
}

/** @param {string} name @param {string} value @param {boolean} [bad] */
function tile(name, value, bad = false) {
  return h("div", { class: bad ? "tile bad" : "tile" }, h("b", {}, value), h("span", {}, name));
}
