// @ts-check
// All subscriptions by name and all queues of the bus, by lag, and what can be done with each.

import { get } from "../api.js";
import { badge, empty, flagged, h, heading, replace, topicLink } from "../dom.js";
import { count, counted, outOf } from "../format.js";
import { LagPast } from "../past.js";
import { inFlight, moveDialog, newCard, Policies, purge, remove } from "../policies.js";
import { link } from "../route.js";
import { Table } from "../table.js";

const PAGE = 200;

/** @param {import("../app.js").View} view */
export async function show(view) {
  const filter = /** @type {HTMLInputElement} */ (h("input", { type: "search", name: "contains", placeholder: "part of a topic or a name" }));
  filter.value = view.query.contains ?? "";
  const note = h("span", { class: "soft", role: "status" });
  const policies = new Policies(() => load(), true);
  /** @param {any} row @param {string} title @param {() => void} act */
  const button = (row, title, act) => h("button", { type: "button", class: "quiet", "aria-label": `${title} ${row.kind} ${row.name} of ${row.topic}`, onclick: act }, title);
  /** @type {Map<string, any>} */
  let newest = new Map();
  /** A button is made once; what it acts on is as it is now. @param {any} row */
  const now = (row) => newest.get(keyOf(row)) ?? row;
  const table = new Table([
    { title: "Name", cell: (row) => h("span", {}, row.name, row.blocked_at === null ? null : [" ", badge("blocked", "bad")]), class: "name" },
    { title: "Topic", cell: (row) => topicLink(row.topic), fixed: true },
    { title: "Kind", cell: (row) => (row.kind === "queue" ? "queue" : row.type), fixed: true },
    { title: "Lag", number: true, cell: (row) => flagged(row.lag, row.blocked_at === null ? "warn" : "bad") },
    { title: "In flight", number: true, cell: (row) => inFlight(row) },
    { title: "Poisoned", number: true, cell: (row) => flagged(row.poisoned, "bad") },
    { title: "Dead letters", number: true, cell: (row) => (row.dead_letters ? h("a", { href: link("rejected", "", { source: "dead_letter", topic: row.topic }) }, count(row.dead_letters)) : "0") },
    { title: "Consumers", number: true, cell: (row) => count(row.consumers) },
    { title: "Actions", unseen: true, fixed: true, class: "tight acts", cell: (row) => h("span", {}, button(row, "Replay", () => moveDialog(now(row), policies.said, load)), " ",
      row.kind === "queue" ? button(row, "Purge", () => purge(now(row), policies.said, load)) : button(row, "Policy", () => policies.open(now(row))), " ",
      button(row, "Delete", () => remove(now(row), policies.said, load))) },
  ], keyOf, empty("No subscription or queue", "Subscriptions by name are created by Danube consumers, queues by zbus clients, and both with the form below. Peers of other wires subscribe while they are connected: see ", h("a", { href: "#/peers" }, "Peers"), "."), "Subscriptions and queues");
  const load = async () => {
    const found = await get("/api/lag", { contains: filter.value, limit: PAGE }, view.signal);
    newest = new Map(found.rows.map((/** @type {any} */ row) => [keyOf(row), row]));
    table.update(found.rows);
    policies.update(found.rows.filter((/** @type {any} */ row) => row.kind === "subscription"));
    note.textContent = found.total ? `${outOf(found.rows.length, found.total, "reader")}, ${counted(found.lag, "message")} behind` : "";
  };
  filter.addEventListener("input", () => {
    view.remember({ contains: filter.value });
    view.attempt(load);
  });
  const past = new LagPast(view);
  replace(view.root, heading("Subscriptions", "Subscriptions by name and queues of all topics: blocked ones first, then the largest lag."), policies.stuck, policies.said,
    h("div", { class: "card" }, h("div", { class: "card-head" }, h("form", { class: "filters", onsubmit: (/** @type {Event} */ event) => event.preventDefault() }, h("label", {}, "Find", filter)), note), table.element),
    policies.form, h("h2", { class: "part" }, view.range()?.title ?? "Last hour"), past.element, newCard("", load));
  await load();
  view.live(load, 2);
  await past.load();
  view.live(() => past.load(), 10);
}

/** @param {any} row */
function keyOf(row) {
  return `${row.kind} ${row.topic} ${row.name}`;
}
