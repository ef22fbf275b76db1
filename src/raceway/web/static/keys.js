// @ts-check
// Keys: `?` lists them, `/` goes to the first field, `g` and a letter to a page, `j` and `k` from row to row.

import { h } from "./dom.js";

const PATIENCE_MS = 1500;

/** @param {[string, string, string][]} pages  letter, name and title of each */
export function listenToKeys(pages) {
  let goes = 0;
  addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || isTyping(event.target) || document.querySelector("dialog[open]")) return;
    const waits = Date.now() - goes < PATIENCE_MS;
    goes = 0;
    const page = waits ? pages.find(([letter]) => letter === event.key) : undefined;
    const done = page ? go(page[1]) : event.key === "g" ? (goes = Date.now()) > 0 : act(event.key, event.target, pages);
    if (done) event.preventDefault();
  });
}

/** @param {EventTarget | null} target */
function isTyping(target) {
  return target instanceof HTMLElement && target.matches("input, textarea, select");
}

/** @param {string} name */
function go(name) {
  location.hash = `#/${name}`;
  return true;
}

/** @param {string} key @param {EventTarget | null} target @param {[string, string, string][]} pages */
function act(key, target, pages) {
  const main = /** @type {HTMLElement} */ (document.getElementById("main"));
  switch (key) {
    case "?":
      return help(pages);
    case "/":
      return focus(main.querySelector("input:not([type=checkbox]), select, textarea"));
    case "j":
    case "k":
      return focus(row(main, key === "j" ? 1 : -1));
    case "ArrowLeft":
    case "ArrowRight":
      // A chart and what scrolls have these keys for themselves.
      return target instanceof Element && target.matches("svg, pre, .scroll") ? false : press(main.querySelector(`a[rel=${key === "ArrowLeft" ? "prev" : "next"}]`));
    default:
      return false;
  }
}

/** @param {Element | null} element */
function focus(element) {
  if (!(element instanceof HTMLElement)) return false;
  element.focus();
  return true;
}

/** @param {Element | null} element */
function press(element) {
  if (!(element instanceof HTMLElement)) return false;
  element.click();
  return true;
}

/** The link of the next row, or of the first one. @param {HTMLElement} main @param {number} by */
function row(main, by) {
  const links = [...main.querySelectorAll("tbody tr")].map((each) => each.querySelector("a[href]")).filter((each) => each !== null && /** @type {HTMLElement} */ (each).offsetParent !== null);
  const now = links.findIndex((each) => each?.closest("tr")?.contains(document.activeElement));
  return links[now < 0 ? 0 : now + by] ?? null;
}

/** @param {[string, string, string][]} pages */
export function help(pages) {
  const dialog = /** @type {HTMLDialogElement} */ (h("dialog", { "aria-label": "Keys" }));
  /** @param {string} keys @param {string} meaning */
  const line = (keys, meaning) => [h("dt", {}, keys.split(" ").flatMap((key) => [h("kbd", {}, key), " "])), h("dd", {}, meaning)];
  dialog.append(h("h2", {}, "Keys"), h("dl", { class: "facts" }, line("?", "this list"), line("/", "the first field of a page"), line("j k", "next row, previous row"), line("↑ ↓", "from row to row within a table"),
    line("← →", "previous and next message; along a chart"), line("Enter", "open what has the focus"), pages.flatMap(([letter, , title]) => line(`g ${letter}`, title))),
  h("div", { class: "actions dialog-end" }, h("button", { type: "button", onclick: () => dialog.close() }, "Close")));
  dialog.addEventListener("close", () => dialog.remove());
  document.body.append(dialog);
  dialog.showModal();
  return true;
}
