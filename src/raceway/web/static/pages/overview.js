// @ts-check
import { get } from "../api.js";
import { LineChart, WireCard } from "../chart.js";
import { badge, bar, empty, facts, flagged, h, heading, renew, replace, setTile, tile, topicLink } from "../dom.js";
import { bytes, count, duration, rate } from "../format.js";
import { Table } from "../table.js";

const KEPT = 300;
const TOPICS = 8;
// Beats of the bus between two looks at what was measured.
const PAST_EVERY = 10;
/** @type {import("../table.js").Column<any>[]} */
const NOW_COLUMNS = [
  { title: "Messages", number: true, cell: (row) => count(row.next - row.first) },
  { title: "Backlog", number: true, cell: (row) => flagged(row.backlog, "warn") },
];
/** @type {import("../table.js").Column<any>[]} */
const PAST_COLUMNS = [
  { title: "Highest", number: true, cell: (row) => rate(row.peak_rate) },
  { title: "Most behind", number: true, cell: (row) => flagged(row.peak_lag, "warn") },
  { title: "Median answer", number: true, cell: (row) => (row.median_us === null ? "" : duration(row.median_us)) },
];
/** Name, figure, where it leads, its mood above 0, what exactly it counts. @type {[string, (now: any) => string, string, "" | "bad" | "warn", string][]} */
const TILES = [
  ["messages stored", (now) => count(now.stored), "#/messages", "", "Publishes and requests of all topics, since the journal was begun"],
  ["journal", (now) => bytes(now.journal_bytes), "#/journal", "", "On disk"],
  ["topics", (now) => count(now.topics), "#/topics", "", ""],
  ["connected", (now) => count(now.peers), "#/peers", "", "Peers that are connected now"],
  ["open requests", (now) => count(now.open_requests), "#/traces", "", "Requests that wait for their answer"],
  ["errors", (now) => count(now.errors), "#/messages?failed=true", "bad", "Malformed messages, failed answers and timeouts since the start"],
  ["rejected", (now) => count(now.rejected), "#/rejected?source=rejected", "warn", "Messages kept because a schema refused them, since the journal was begun"],
  ["dead letters", (now) => count(now.dead_letters), "#/rejected?source=dead_letter", "warn", "Since the start"],
  ["blocked", (now) => count(now.blocked), "#/subscriptions", "bad", "Subscriptions that stand still behind a message that failed too often"],
];

/** @param {import("../app.js").View} view */
export async function show(view) {
  const [history, first] = await Promise.all([get("/api/history", {}, view.signal), get("/api/overview", {}, view.signal)]);
  /** @type {import("../chart.js").Sample[]} */
  const samples = history.samples;
  const wires = Object.keys(first.totals);
  const state = h("div", { class: "actions" });
  const trouble = h("div", { class: "notice bad", hidden: true, role: "alert" });
  const warnings = h("div", { class: "notice warn", hidden: true, role: "status" });
  // Made once: a click that begins on one and ends on its successor would lead nowhere.
  const tiles = TILES.map(([name, , href, , title]) => tile(name, "", "", href, title));
  const totals = h("div", {});
  const cards = wires.map((wire) => new WireCard(wire));
  const chart = new LineChart("Messages a second, by wire");
  const draw = () => chart.live(wires, samples.slice(-KEPT).map(({ time_us, wires: values }) => ({ time_us, values })));
  const shown = view.range();
  // Fetched if it is asked for: most look at now.
  const past = shown ? await import("../past.js") : null;
  const before = past ? new past.BusPast(view) : null;
  const busiest = topicTable(shown);

  /** @param {any} now */
  const update = (now) => {
    replace(state, badge(now.status.replace("_", " "), now.status === "ok" ? "good" : "bad"), h("span", { class: "soft" }, `version ${now.version}, up ${duration(now.uptime_s * 1e6)}`));
    trouble.hidden = now.status === "ok";
    trouble.textContent = `The bus is ${now.status.replace("_", " ")}. ${now.reason}`;
    warnings.hidden = now.warnings.length === 0;
    replace(warnings, ...now.warnings.map((/** @type {string} */ text) => h("div", {}, text)));
    TILES.forEach(([, what, , mood], at) => setTile(tiles[at], what(now), mood && Number(what(now).replaceAll(",", "")) > 0 ? mood : ""));
    for (const card of cards) card.update(samples, now.rates[card.wire] ?? 0, `${count(now.totals[card.wire] ?? 0)} since the start`);
    renew(totals, facts([
      ["Publishes received", count(now.kinds.publish ?? 0)], ["Requests received", count(now.kinds.request ?? 0)], ["Answers received", count(now.kinds.response ?? 0)],
      ["Of these refused", count(now.refused)],
      ["Copies delivered", count(now.delivered)], ["Copies a second", rate(now.delivered_rate)], ["Payloads", bytes(now.bytes)], ["Subscriptions by name", h("a", { href: "#/subscriptions" }, count(now.subscriptions))],
      ["Queues", count(now.queues)], ["Undeliverable", count(now.undeliverable)], ["Rows of the journal", count(now.committed + 1)],
    ]));
  };
  replace(view.root, heading("Overview", "Current traffic of the bus.", state), trouble, warnings, h("div", { class: "wires" }, cards.map((card) => card.element)), h("div", { class: "tiles" }, tiles),
    before ? before.element : h("div", { class: "card" }, h("div", { class: "card-head" }, h("h2", {}, "Messages a second, by wire"), chart.legend), chart.drawing),
    h("div", { class: "cards uneven" }, h("div", { class: "card" }, h("h2", {}, shown ? `Busiest topics, ${shown.title.toLowerCase()}` : "Busiest topics"), busiest.element), h("div", { class: "card" }, h("h2", {}, "Since start"), totals)));
  update(first);
  draw();
  // Neither healthy nor idle: unknown.
  view.lost(() => {
    replace(state, badge("no answer", "bad"), h("span", { class: "soft" }, "state unknown"));
    for (const card of cards) card.rate.textContent = "–";
  });
  const topTopics = async () => busiest.update(withShares(past ? await past.busiest(view, TOPICS) : (await get("/api/topics", { order: "rate", limit: TOPICS }, view.signal)).topics));
  await Promise.all([topTopics(), before?.load()]);
  view.live((now) => {
    if (now.rates_us > (samples[samples.length - 1]?.time_us ?? 0)) {
      samples.push({ time_us: now.rates_us, wires: now.rates });
      if (samples.length > KEPT) samples.shift();
    }
    update(now);
    draw();
  });
  view.live(topTopics, past ? PAST_EVERY : 2);
  if (before) view.live(() => before.load(), PAST_EVERY);
}

/** @param {import("../range.js").Range | null} shown  null: now */
function topicTable(shown) {
  return new Table([
    { title: "Topic", cell: (row) => topicLink(row.topic), fixed: true },
    { title: "Share", unseen: true, cell: (row) => bar(100 * row.share), class: "share" },
    { title: "Rate", number: true, cell: (row) => rate(row.rate) },
    ...(shown ? PAST_COLUMNS : NOW_COLUMNS),
  ], (row) => row.topic, empty("No topic yet", "Publish something: ", h("code", {}, "raceway pub baggage.events '{\"bag\": 17}'")), "Busiest topics");
}

/** How each compares with the busiest. @param {any[]} rows */
function withShares(rows) {
  const most = Math.max(...rows.map((row) => row.rate), 0);
  return rows.map((row) => ({ ...row, share: most ? row.rate / most : 0 }));
}
