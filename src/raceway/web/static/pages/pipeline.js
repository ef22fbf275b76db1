// @ts-check
import { get } from "../api.js";
import { badge, bar, empty, facts, h, heading, renew, replace, tile } from "../dom.js";
import { ago, bytes, count, duration } from "../format.js";
import { link } from "../route.js";
import { shownCell, SqlCard } from "../sql.js";
import { Table } from "../table.js";

/** @type {Record<string, string>} */
const HOLDS = {
  "bronze.messages": "every row of the journal, unchanged", "bronze.rejected": "messages refused by a schema", "silver.messages": "each message once, payloads decoded by their schema",
  "silver.exchanges": "each request with its answer", "silver.hops": "the path of each message from service to service", "gold.traces": "all messages caused by one message, as a tree",
  "gold.topic_stats": "topics by the minute", "gold.service_graph": "requests between services, by the hour", "gold.schema_usage": "use of schema versions, by the hour",
};

/** @param {string} table */
function holds(table) {
  return HOLDS[table] ?? (table.startsWith("topics.") ? "payloads of a topic with a schema, a column for each member" : "");
}

/** @param {import("../app.js").View} view */
export async function show(view) {
  await (view.argument ? one(view) : progress(view));
}

/** @param {import("../app.js").View} view */
async function progress(view) {
  const about = h("div", {});
  const tables = new Table([
    { title: "Table", cell: (row) => h("a", { href: link("pipeline", row.name) }, row.name), fixed: true },
    { title: "Holds", cell: (row) => h("span", { class: "soft" }, holds(row.name)), fixed: true, class: "wide" },
    { title: "Rows", number: true, cell: (row) => (row.rows === null ? "" : count(row.rows)) },
    { title: "Parts", number: true, cell: (row) => count(row.parts) },
    { title: "Size", number: true, cell: (row) => bytes(row.bytes) },
  ], (row) => row.name, empty("No table yet", "The pipeline creates them from the journal: ", h("code", {}, "raceway pipeline run --once")), "Tables");
  const card = new SqlCard(view, view.query.sql ?? "");
  const missing = h("div", { class: "notice", hidden: true });
  replace(view.root, heading("Tables", "Tables that the pipeline makes from the journal, for SQL here, Spark, DuckDB and other readers."),
    about, h("div", { class: "card" }, h("h2", {}, "Tables"), tables.element), missing, card.element);
  const load = async () => {
    const found = await get("/api/pipeline", {}, view.signal);
    tables.update(found.tables);
    missing.textContent = found.no_sql ? `${found.no_sql}.` : "";
    missing.hidden = !found.no_sql;
    card.element.hidden = found.no_sql !== "" || !found.tables.length;
    renew(about, found.progress ? describe(found) : h("div", { class: "card" }, empty("The pipeline has not run on this folder", "Start it: ", h("code", {}, "raceway pipeline run"), " (it needs Java and the extra ", h("code", {}, "raceway[spark]"), ")")));
  };
  await load();
  view.live(load, 2);
  if (card.text && !card.element.hidden) await card.run();
}

/** @param {any} found */
function describe(found) {
  const { progress: now } = found;
  const state = found.is_running ? now.state : now.state === "failed" ? "failed" : "not running";
  const whole = Math.max(1, now.position + found.behind - now.first_position);
  const done = bar(Math.min(100, (100 * Math.max(0, now.position - now.first_position)) / whole), "Done");
  done.classList.add("tall");
  const { behind } = found;
  return h("div", {}, now.error ? h("div", { class: "notice bad", role: "alert" }, now.error) : null,
    h("div", { class: "tiles" }, tile(behind === 1 ? "row behind" : "rows behind", count(behind), behind ? "warn" : ""), tile("rows in the tables", count(now.rows)), tile(now.batches === 1 ? "batch" : "batches", count(now.batches)),
      tile("last batch", now.last_batch ? duration(now.last_batch.seconds * 1e6) : "none"), now.lost_rows ? tile("rows lost to retention", count(now.lost_rows), "bad") : null),
    h("div", { class: "card" }, h("div", { class: "card-head" }, h("h2", {}, "Progress"), badge(state, found.is_running ? "good" : state === "failed" ? "bad" : "")),
      done, facts([
        ["Processed up to", `position ${count(now.position)} of ${count(now.position + found.behind)}`],
        ["Last batch", now.last_batch ? `${count(now.last_batch.rows)} rows, positions ${count(now.last_batch.first)} to ${count(now.last_batch.last)}` : ""],
        ["Format", now.format], ["Last report", ago(now.updated_us, Date.now() * 1000)],
      ])));
}

/** @param {import("../app.js").View} view */
async function one(view) {
  const { no_sql: missing } = await get("/api/pipeline", {}, view.signal);
  const found = await get(`/api/tables/${encodeURIComponent(view.argument)}`, { limit: 50 }, view.signal);
  const all = h("a", { class: "button quiet", href: link("pipeline") }, "All tables");
  const columns = found.columns.length ? h("div", { class: "card" }, h("h2", {}, "Columns"), facts(found.columns.map((/** @type {any} */ each) => [each.name, h("code", {}, each.type)]))) : h("span", {});
  if (!missing) {
    const card = new SqlCard(view, view.query.sql ?? `SELECT * FROM ${view.argument}`);
    replace(view.root, heading(found.name, holds(found.name), all), card.element, columns);
    await card.run();
    return;
  }
  const table = new Table(found.columns.map((/** @type {any} */ column, /** @type {number} */ at) => ({
    title: column.name, number: /^(u?int|float|double)/.test(column.type), cell: (/** @type {any} */ row) => shownCell(column.name, row.cells[at]), fixed: true, class: "cell",
  })), (row) => row.number, empty("No rows", found.note || "The table is empty."), found.name);
  table.update(found.rows.map((/** @type {any[]} */ cells, /** @type {number} */ number) => ({ cells, number })));
  replace(view.root, heading(found.name, found.part ? `The first rows of its newest part, ${found.part}` : found.note, all), h("div", { class: "notice" }, missing), h("div", { class: "card" }, table.element), columns);
}
