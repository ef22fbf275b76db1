// @ts-check
// Who changed what: the topic raceway.audit as a list.

import { get } from "../api.js";
import { empty, h, heading, momentLink, onlyOf, replace } from "../dom.js";
import { counted } from "../format.js";
import { times } from "../range.js";
import { link } from "../route.js";
import { Table } from "../table.js";

const TOPIC = "raceway.audit";
const PAGE = 100;

/** @param {import("../app.js").View} view */
export async function show(view) {
  const who = /** @type {HTMLInputElement} */ (h("input", { type: "search", name: "who", placeholder: "user:alice", autocomplete: "off" }));
  who.value = view.query.who ?? "";
  const note = h("span", { class: "soft", role: "status" });
  const more = /** @type {HTMLButtonElement} */ (h("button", { type: "button", class: "quiet", hidden: true }, "Search further back"));
  const table = new Table([
    { title: "Time", cell: (row) => momentLink(link("messages", row.sequence), row.time_us), fixed: true, class: "tight" },
    { title: "Who", cell: (row) => h("span", {}, row.attributes.principal, h("span", { class: "soft" }, ` from ${row.attributes.address}`)), fixed: true },
    { title: "What", cell: (row) => row.attributes.action, fixed: true },
    { title: "Where", cell: (row) => h("span", { class: "mono" }, `${row.attributes.method} ${row.attributes.path}${row.attributes.query ? `?${row.attributes.query}` : ""}`), fixed: true, class: "wide" },
    { title: "Asked for", cell: (row) => h("span", { class: "cut mono" }, row.payload === "{}" ? "" : row.payload), fixed: true, class: "wide" },
  ], (row) => row.sequence, empty("No change", "Nothing was changed", who.value ? ` by ${who.value}.` : "."), "Changes");
  /** @type {any[]} */
  let rows = [];
  /** @type {number | null} */
  let before = null;
  /** @param {number | null} below */
  const page = (below) => get("/api/messages", { topic: TOPIC, kind: "publish", producer: who.value.trim(), limit: PAGE, before: below, ...times(view.range()) }, view.signal);
  const first = async () => {
    if (rows.length > PAGE) return; // somebody reads further back
    const found = await page(null);
    rows = found.messages;
    before = found.before;
    render();
  };
  const render = () => {
    table.update(rows);
    more.hidden = before === null;
    note.textContent = rows.length ? counted(rows.length, "change") : "";
  };
  more.addEventListener("click", () => view.attempt(async () => {
    const found = await page(before);
    rows = [...rows, ...found.messages];
    before = found.before;
    render();
  }));
  const filter = (/** @type {Event} */ event) => {
    event.preventDefault();
    location.hash = link("changes", "", { who: who.value.trim() });
  };
  replace(view.root, heading("Changes", h("span", {}, "Changes of the bus and by whom, newest first: the topic ", h("a", { href: link("topics", TOPIC) }, TOPIC), ".", onlyOf(view.range()))),
    h("div", { class: "card" }, h("div", { class: "card-head" }, h("form", { class: "filters", onsubmit: filter }, h("label", {}, "By", who)), note), table.element, more));
  await first();
  view.live(first, 3);
}
