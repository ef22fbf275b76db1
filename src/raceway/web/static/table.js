// @ts-check
// Tables that stay: new figures go into the cells that are there, so focus and selection survive. Until the first rows
// have come a table says that it is loading: no answer yet is not an empty one. A row leads where its first link leads;
// the arrow keys go from row to row.

import { h, loading, put } from "./dom.js";

// Figures that are not worth a look, so that others are.
const NOTHING = /^0(\/s)?$/;

/**
 * @template T
 * @typedef {object} Column
 * @property {string} title
 * @property {(row: T) => Node | string | number | null | undefined} cell
 * @property {boolean} [number]  to the right, digits of one width
 * @property {string} [class]
 * @property {boolean | ((row: T) => unknown)} [fixed]   never changes for a row, so it is made once; or only when this does
 * @property {boolean} [unseen]  its title is for readers of the screen only
 * @property {boolean} [optional]  not shown while no row has anything in it
 */

/** @template T */
export class Table {
  /**
   * @param {Column<T>[]} columns
   * @param {(row: T) => string | number} key  what makes a row itself
   * @param {Node} ifEmpty  shown while there is no row
   * @param {string} [caption]
   */
  constructor(columns, key, ifEmpty, caption = "") {
    this.columns = columns;
    this.key = key;
    /** @type {Map<string, HTMLElement>} */
    this.rows = new Map();
    this.body = h("tbody");
    this.heads = columns.map((column) => h("th", { scope: "col", class: column.number ? "n" : "" }, column.unseen ? h("span", { class: "unseen" }, column.title) : column.title));
    this.table = h("table", { class: "stack", "aria-label": caption || null }, h("thead", {}, h("tr", {}, this.heads)), this.body);
    this.ifEmpty = ifEmpty;
    this.pending = loading();
    this.table.hidden = true;
    /** @type {HTMLElement} */ (ifEmpty).hidden = true;
    this.body.addEventListener("click", follow);
    this.body.addEventListener("keydown", step);
    this.element = h("div", { class: "scroll" }, this.table, ifEmpty, this.pending);
  }

  /** Other rows will come, or none; what was shown is not the answer. @param {string} [said] */
  reset(said = "Loading…") {
    this.rows.clear();
    this.body.replaceChildren();
    this.table.hidden = true;
    /** @type {HTMLElement} */ (this.ifEmpty).hidden = true;
    this.pending.className = "loading";
    this.pending.textContent = said;
    this.pending.hidden = false;
  }

  /** @param {T[]} rows */
  update(rows) {
    const focused = this.body.contains(document.activeElement) ? /** @type {HTMLElement} */ (document.activeElement) : null;
    const wanted = new Set();
    rows.forEach((row, at) => {
      const key = String(this.key(row));
      wanted.add(key);
      const line = this.rows.get(key) ?? this.#made(key);
      this.columns.forEach((column, number) => this.#set(/** @type {HTMLElement} */ (line.children[number]), column, row));
      if (this.body.children[at] !== line) this.body.insertBefore(line, this.body.children[at] ?? null);
    });
    for (const [key, line] of this.rows) {
      if (!wanted.has(key)) {
        line.remove();
        this.rows.delete(key);
      }
    }
    this.columns.forEach((column, at) => column.optional && this.#showIfFilled(at));
    // A row that moved to another place lost it.
    if (focused?.isConnected && focused !== document.activeElement) focused.focus({ preventScroll: true });
    this.pending.hidden = true;
    this.table.hidden = rows.length === 0;
    /** @type {HTMLElement} */ (this.ifEmpty).hidden = rows.length > 0;
  }

  /** @param {string} key */
  #made(key) {
    const cells = this.columns.map((column) =>
      h("td", { class: `${column.number ? "n" : ""} ${column.class ?? ""}`.trim(), "data-title": column.unseen ? "" : column.title }));
    const line = h("tr", {}, cells);
    this.rows.set(key, line);
    return line;
  }

  /** @param {number} at */
  #showIfFilled(at) {
    const cells = [...this.rows.values()].map((line) => /** @type {HTMLElement} */ (line.children[at]));
    const hidden = cells.every((cell) => !cell.textContent);
    for (const cell of [this.heads[at], ...cells]) cell.hidden = hidden;
  }

  /** @param {HTMLElement} cell @param {Column<T>} column @param {T} row */
  #set(cell, column, row) {
    if (column.fixed) {
      const made = typeof column.fixed === "function" ? String(column.fixed(row)) : "";
      if (cell.firstChild && cell.dataset.made === made) return;
      cell.dataset.made = made;
    }
    const content = column.cell(row);
    if (content instanceof Node) {
      // A link that is about to be followed stays: a click begins and ends on the same element.
      const isSame = cell.childNodes.length === 1 && !(content instanceof Element && content.querySelector("button")) && cell.firstChild?.isEqualNode(content);
      if (!isSame) cell.replaceChildren(content);
    }
    else if (cell.textContent !== String(content ?? "") || cell.firstElementChild) {
      cell.replaceChildren();
      put(cell, content);
    }
    if (column.number) cell.classList.toggle("zero", NOTHING.test(cell.textContent ?? ""));
  }
}

/** A click beside everything that has a meaning of its own, and not the end of a selection. @param {MouseEvent} event */
function follow(event) {
  const target = /** @type {Element} */ (event.target);
  if (target.closest("a, button, input, select, label, summary, textarea") || String(getSelection() ?? "")) return;
  /** @type {HTMLElement | null | undefined} */ (target.closest("tr")?.querySelector("a[href]"))?.click();
}

/** @param {KeyboardEvent} event */
function step(event) {
  const by = { ArrowDown: 1, ArrowUp: -1 }[event.key];
  const target = /** @type {Element} */ (event.target);
  const row = target.closest("tr");
  if (!by || !row || target.matches("input, select, textarea")) return;
  const next = by > 0 ? row.nextElementSibling : row.previousElementSibling;
  const reached = /** @type {HTMLElement | null | undefined} */ (next?.querySelector("a[href], button, input"));
  if (!reached) return;
  event.preventDefault();
  reached.focus();
}
