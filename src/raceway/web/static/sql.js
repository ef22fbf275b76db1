// @ts-check
// SQL over the tables: a field, what came of it, and the same as a file.

import { download, get } from "./api.js";
import { copyButton, empty, h, replace } from "./dom.js";
import { cell, counted, duration } from "./format.js";
import { asking } from "./route.js";
import { Table } from "./table.js";

const SHOWN = 500;
// A file may have as many rows as the bus gives out.
const MOST = 1_000_000_000;

/** @typedef {{columns: {name: string, type: string}[], rows: any[][], is_cut: boolean, took_ms: number}} Result */

export class SqlCard {
  /**
   * @param {import("./app.js").View} view
   * @param {string} sql
   */
  constructor(view, sql) {
    this.view = view;
    this.field = /** @type {HTMLTextAreaElement} */ (h("textarea", { name: "sql", class: "low", rows: 3, spellcheck: "false", required: true, placeholder: "SELECT topic, count(*) AS messages FROM bronze.messages GROUP BY topic ORDER BY messages DESC",
      onkeydown: (/** @type {KeyboardEvent} */ event) => (event.ctrlKey || event.metaKey) && event.key === "Enter" && this.form.requestSubmit() }));
    this.field.value = sql;
    this.at = /** @type {HTMLInputElement} */ (h("input", { name: "at", type: "text", spellcheck: "false", placeholder: "now" }));
    this.at.value = view.query.at ?? "";
    this.said = h("span", { class: "soft grows", role: "status" });
    this.result = h("div", { class: "result" });
    this.go = /** @type {HTMLButtonElement} */ (h("button", { title: "Ctrl Enter" }, "Run"));
    /** @type {HTMLFormElement} */
    this.form = /** @type {HTMLFormElement} */ (h("form", { class: "publish", "aria-label": "SQL", onsubmit: (/** @type {Event} */ event) => {
      event.preventDefault();
      this.view.remember({ sql: this.text, at: this.#at });
      this.view.attempt(() => this.run());
    } }, h("label", {}, "SQL", this.field), h("label", { class: "narrow" }, "As of: a version, or a time (UTC)", this.at), h("div", { class: "actions" }, this.go, this.#file("csv", "CSV"), this.#file("parquet", "Parquet"), copyButton(() => this.text, "SQL"), this.said)));
    this.element = h("div", { class: "card" }, this.form, this.result);
  }

  get text() {
    return this.field.value.trim().replace(/;+$/, "");
  }

  get #at() {
    return this.at.value.trim();
  }

  /** Ask, and show what comes. @param {string} [sql] @param {[number, string]} [sorted]  column and direction */
  async run(sql = this.text, sorted) {
    this.go.disabled = true;
    this.said.textContent = "Running…";
    try {
      /** @type {Result} */
      const found = await get("/api/sql", { sql, at: this.#at, limit: SHOWN }, this.view.signal);
      this.#show(found, sorted);
    } catch (error) {
      this.said.textContent = "";
      replace(this.result);
      throw error;
    } finally {
      this.go.disabled = false;
    }
  }

  /** @param {Result} found @param {[number, string]} [sorted] */
  #show(found, sorted) {
    this.said.textContent = `${found.is_cut ? "The first " : ""}${counted(found.rows.length, "row")} in ${duration(found.took_ms * 1000)}`;
    const table = new Table(found.columns.map((column, at) => ({
      title: column.name, number: isNumber(column.type), cell: (/** @type {any} */ row) => shownCell(column.name, row.cells[at]), fixed: true, class: "cell",
    })), (row) => row.number, empty("No rows", "The query gave none."), "Result");
    // Its heads sort, so it stays a table on a narrow screen, too.
    table.table.classList.remove("stack");
    table.update(found.rows.map((cells, number) => ({ cells, number })));
    table.heads.forEach((head, at) => {
      const now = sorted?.[0] === at ? sorted[1] : "";
      const next = now === "ascending" ? "descending" : "ascending";
      head.setAttribute("aria-sort", now || "none");
      replace(head, h("button", { type: "button", class: "sort", title: found.columns[at].type, onclick: () => this.#sort(found, at, next) }, `${found.columns[at].name}${now ? (now === "ascending" ? " ↑" : " ↓") : ""}`));
    });
    table.element.setAttribute("tabindex", "0");
    table.element.setAttribute("role", "region");
    table.element.setAttribute("aria-label", "Rows");
    replace(this.result, table.element);
  }

  /** All rows are here, or the bus sorts them. @param {Result} found @param {number} at @param {string} direction */
  #sort(found, at, direction) {
    if (found.is_cut) {
      this.view.attempt(() => this.run(`SELECT * FROM (\n${this.text}\n) ORDER BY ${at + 1} ${direction === "ascending" ? "ASC" : "DESC"} NULLS LAST`, [at, direction]));
      return;
    }
    const sign = direction === "ascending" ? 1 : -1;
    const rows = [...found.rows].sort((a, b) => (a[at] === null ? 1 : b[at] === null ? -1 : sign * compared(a[at], b[at])));
    this.#show({ ...found, rows }, [at, direction]);
  }

  /** @param {string} format @param {string} title */
  #file(format, title) {
    return h("button", { type: "button", class: "quiet", "aria-label": `Download as ${title}`, onclick: () => this.form.reportValidity() && this.view.attempt(async () => {
      const address = URL.createObjectURL(await download(`/api/sql${asking({ sql: this.text, at: this.#at, format, limit: MOST })}`));
      h("a", { href: address, download: `result.${format}` }).click();
      URL.revokeObjectURL(address);
    }) }, title);
  }
}

/** @param {string} type */
function isNumber(type) {
  return /^(u?int|float|double|decimal|half)/.test(type);
}

/** @param {any} a @param {any} b */
function compared(a, b) {
  return typeof a === "number" && typeof b === "number" ? a - b : String(a) < String(b) ? -1 : a === b ? 0 : 1;
}

/** A cell: long ones are cut, and whole under the pointer. @param {string} name  of the column @param {unknown} value */
export function shownCell(name, value) {
  if (value === null) return h("span", { class: "soft" }, "null");
  const text = cell(name, value);
  return text.length > 30 ? h("span", { title: text }, text) : text;
}
