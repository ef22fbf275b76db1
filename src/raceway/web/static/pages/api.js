// @ts-check
import { get } from "../api.js";
import { badge, empty, h, heading, replace } from "../dom.js";
import { Table } from "../table.js";

/** @param {import("../app.js").View} view */
export async function show(view) {
  const found = await get("/api/openapi.json", {}, view.signal);
  const rows = Object.entries(found.paths).flatMap(([path, methods]) => Object.entries(methods).map(([method, operation]) => ({ path, method, ...operation })));
  const table = new Table([
    { title: "Method", cell: (row) => badge(row.method.toUpperCase(), row.method === "get" ? "" : "warn"), fixed: true },
    { title: "Address", cell: (row) => h("span", { class: "mono" }, row.path), fixed: true, class: "wide" },
    { title: "Description", cell: (row) => h("span", {}, marked(row.summary)), fixed: true, class: "wide" },
    { title: "Takes", cell: (row) => h("span", { class: "soft" }, row.parameters.filter((/** @type {any} */ each) => each.in === "query").map((/** @type {any} */ each) => each.name).join(", ")), fixed: true },
  ], (row) => `${row.method} ${row.path}`, empty("No operation"), "Operations");
  table.update(rows);
  replace(view.root, heading("API", "The HTTP API behind this console.", h("a", { class: "button quiet", href: "/api/openapi.json" }, "OpenAPI document")),
    h("div", { class: "card" }, table.element));
}

/** What stands between backticks is code. @param {string} text */
function marked(text) {
  return text.split("`").map((part, at) => (at % 2 ? h("code", {}, part) : part));
}
