// @ts-check
import { encode, get } from "../api.js";
import { badge, empty, facts, h, heading, replace } from "../dom.js";
import { ago, bytes, count, duration } from "../format.js";
import { link } from "../route.js";
import { Table } from "../table.js";

/** @param {import("../app.js").View} view */
export async function show(view) {
  await (view.argument ? preview(view) : progress(view));
}

/** @param {import("../app.js").View} view */
async function progress(view) {
  const about = h("div", {});
  const tables = new Table([
    { title: "Table", cell: (row) => h("a", { href: link("pipeline", row.name) }, row.name), fixed: true, class: "wide" },
    { title: "Rows", number: true, cell: (row) => (row.rows === null ? "" : count(row.rows)) },
    { title: "Parts", number: true, cell: (row) => count(row.parts) },
    { title: "Size", number: true, cell: (row) => bytes(row.bytes) },
  ], (row) => row.name, empty("No table yet", "The pipeline makes them from the journal: ", h("code", {}, "raceway pipeline run --once")), "Tables");
  replace(view.root, heading("Pipeline", "From the journal to tables for Spark, DuckDB and whoever reads Parquet."),
    h("div", { class: "card" }, h("h2", {}, "Progress"), about), h("div", { class: "card" }, h("h2", {}, "Tables"), tables.element));
  const load = async () => {
    const found = await get("/api/pipeline", {}, view.signal);
    tables.update(found.tables);
    replace(about, found.progress ? describe(found) : empty("The pipeline has not run on this folder", "Start it: ", h("code", {}, "raceway pipeline run"), " (it needs Java and the extra ", h("code", {}, "raceway[spark]"), ")"));
  };
  await load();
  view.live(load, 2000);
}

/** @param {any} found */
function describe(found) {
  const { progress: now } = found;
  const state = found.is_running ? now.state : now.state === "failed" ? "failed" : "not running";
  const whole = Math.max(1, now.committed + 1 - (now.first_position ?? 0));
  const fill = h("i", {});
  fill.style.width = `${Math.min(100, (100 * Math.max(0, now.position - (now.first_position ?? 0))) / whole)}%`;
  return h("div", {}, h("p", { class: "actions" }, badge(state, found.is_running ? "good" : state === "failed" ? "bad" : ""), h("div", { class: "bar" }, fill),
    h("span", { class: "soft" }, `${count(now.lag ?? 0)} rows behind`)), now.error ? h("div", { class: "notice bad" }, now.error) : null,
  facts([
    ["Done up to", `position ${count(now.position)} of ${count(now.committed + 1)}`], ["Rows", count(now.rows ?? 0)], ["Batches", count(now.batches ?? 0)],
    ["Last batch", now.last_batch ? `${count(now.last_batch.rows)} rows in ${duration(now.last_batch.seconds * 1e6)}` : ""],
    ["Rows lost to retention", now.lost_rows ? count(now.lost_rows) : ""], ["Format", now.format], ["Last word", ago(now.updated_us ?? 0, Date.now() * 1000)],
  ]));
}

/** @param {import("../app.js").View} view */
async function preview(view) {
  const found = await get(`/api/tables/${encode(view.argument)}`, { limit: 50 }, view.signal);
  const columns = found.columns.map((/** @type {any} */ column, /** @type {number} */ at) => ({
    title: column.name, cell: (/** @type {any} */ row) => h("span", { class: "cut" }, row.cells[at] === null ? h("span", { class: "soft" }, "null") : String(row.cells[at])), fixed: true,
  }));
  const table = new Table(columns, (row) => row.number, empty("No rows", found.note || "The table is empty."), found.name);
  table.update(found.rows.map((/** @type {any[]} */ cells, /** @type {number} */ number) => ({ cells, number })));
  replace(view.root, heading(found.name, found.part ? `The first rows of its newest part, ${found.part}` : found.note, h("a", { class: "button quiet", href: "#/pipeline" }, "All tables")),
    h("div", { class: "card" }, table.element), found.rows.length ? h("div", { class: "card" }, h("h2", {}, "Columns"), facts(found.columns.map((/** @type {any} */ each) => [each.name, h("code", {}, each.type)]))) : h("span", {}));
}
