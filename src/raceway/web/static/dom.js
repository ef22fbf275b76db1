// @ts-check
// Making elements. Text is only ever set as text, so names and payloads of strangers cannot become markup.

import { clock, count, time, zone } from "./format.js";
import { link } from "./route.js";

const SVG = "http://www.w3.org/2000/svg";

/**
 * @typedef {Node | string | number | null | undefined | false} Child
 * @typedef {Record<string, any>} Props  attributes; `on…` are listeners, `class` is the class
 */

/**
 * An element. Children that are no nodes become text.
 * @param {string} tag
 * @param {Props} [props]
 * @param {...(Child | Child[])} children
 * @returns {HTMLElement}
 */
export function h(tag, props = {}, ...children) {
  return /** @type {HTMLElement} */ (fill(document.createElement(tag), props, children));
}

/**
 * An element of a drawing.
 * @param {string} tag
 * @param {Props} [props]
 * @param {...(Child | Child[])} children
 * @returns {SVGElement}
 */
export function s(tag, props = {}, ...children) {
  return /** @type {SVGElement} */ (fill(document.createElementNS(SVG, tag), props, children));
}

/**
 * @param {Element} element
 * @param {Props} props
 * @param {(Child | Child[])[]} children
 */
function fill(element, props, children) {
  for (const [name, value] of Object.entries(props)) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else element.setAttribute(name, value === true ? "" : String(value));
  }
  put(element, ...children);
  return element;
}

/**
 * Add children.
 * @param {Element} element
 * @param {...(Child | Child[])} children
 */
export function put(element, ...children) {
  for (const child of children.flat()) {
    if (child === null || child === undefined || child === false) continue;
    element.append(child instanceof Node ? child : document.createTextNode(String(child)));
  }
}

/**
 * Other children instead of those that are there.
 * @param {Element} element
 * @param {...(Child | Child[])} children
 */
export function replace(element, ...children) {
  element.replaceChildren();
  put(element, ...children);
}

/**
 * The same children with other figures: what is there stays, so that the focus and a click that has begun survive. A link
 * never becomes another one. Only for what has no listeners; those of the new children are lost.
 * @param {Element} element
 * @param {...(Child | Child[])} children
 */
export function renew(element, ...children) {
  const focused = element.contains(document.activeElement) ? document.activeElement?.getAttribute("href") : null;
  takeOver(element, h("div", {}, ...children));
  if (!focused || element.contains(document.activeElement)) return;
  /** @type {HTMLElement | null} */ (element.querySelector(`[href="${CSS.escape(focused)}"]`))?.focus({ preventScroll: true });
}

/** @param {Element} there @param {Element} wanted */
function takeOver(there, wanted) {
  const before = [...there.childNodes];
  const after = [...wanted.childNodes];
  after.forEach((node, at) => {
    const old = before[at];
    if (!old) there.append(node);
    else if (old.nodeName !== node.nodeName || target(old) !== target(node)) old.replaceWith(node);
    else if (old instanceof Element && node instanceof Element) {
      for (const { name } of [...old.attributes]) if (!node.hasAttribute(name)) old.removeAttribute(name);
      for (const { name, value } of node.attributes) if (old.getAttribute(name) !== value) setAttribute(old, name, value);
      takeOver(old, node);
    } else if (old.nodeValue !== node.nodeValue) old.nodeValue = node.nodeValue;
  });
  for (const old of before.slice(after.length)) old.remove();
}

/** @param {Node} node */
function target(node) {
  return node instanceof Element ? node.getAttribute("href") : null;
}

/** @param {Element} element @param {string} name @param {string} value */
function setAttribute(element, name, value) {
  // The page's policy forbids styles as text of attributes, and allows them set by scripts.
  if (name === "style") /** @type {HTMLElement} */ (element).style.cssText = value;
  else element.setAttribute(name, value);
}

/**
 * A moment as a link: short, and whole under the pointer.
 * @param {string} href
 * @param {number} us  since 1970
 */
export function momentLink(href, us) {
  return h("a", { class: "mono", href, title: `${time(us)} ${zone(us)}` }, clock(us, Date.now() * 1000));
}

/**
 * A figure with what it is; with an address it leads to what is counted.
 * @param {string} name
 * @param {string} value
 * @param {"" | "bad" | "warn"} [mood]
 * @param {string} [href]
 * @param {string} [title]  what exactly is counted
 */
export function tile(name, value, mood = "", href = "", title = "") {
  return h(href ? "a" : "div", { class: `tile ${mood}`.trim(), href: href || null, title: title || null }, h("b", {}, value), h("span", {}, name));
}

/** Another value for a tile that is there. @param {HTMLElement} made @param {string} value @param {"" | "bad" | "warn"} mood */
export function setTile(made, value, mood) {
  made.className = `tile ${mood}`.trim();
  const shown = /** @type {HTMLElement} */ (made.firstChild);
  if (shown.textContent !== value) shown.textContent = value;
}

/** Stands where an answer of the bus will be. @param {string} [what] */
export function loading(what = "") {
  return h("div", { class: "loading", "aria-live": "polite" }, what ? `Loading ${what}…` : "Loading…");
}

/**
 * A button that copies a text.
 * @param {string | (() => string)} text
 * @param {string} what  is copied
 */
export function copyButton(text, what) {
  const button = h("button", { type: "button", class: "quiet copy", "aria-label": `Copy ${what}`, onclick: async () => {
    const done = await copied(typeof text === "string" ? text : text());
    button.textContent = done ? "Copied" : "Not copied";
    setTimeout(() => { button.textContent = "Copy"; }, 1500);
  } }, "Copy");
  return button;
}

/** A text with a button that copies it. @param {string} text @param {string} what */
export function copyable(text, what) {
  return text ? h("span", { class: "copyable" }, h("span", { class: "mono" }, text), " ", copyButton(text, what)) : "";
}

/** @param {string} text */
async function copied(text) {
  try {
    await navigator.clipboard.writeText(text);
    return true;
  } catch {
    // Browsers keep the clipboard from pages that came without TLS from another machine; the old way works there.
    const field = /** @type {HTMLTextAreaElement} */ (h("textarea", { class: "unseen", "aria-hidden": "true" }));
    field.value = text;
    document.body.append(field);
    field.select();
    const done = document.execCommand("copy");
    field.remove();
    return done;
  }
}

/** Names of the wires, from the page itself. */
export function wireNames() {
  const found = /** @type {HTMLMetaElement | null} */ (document.querySelector("meta[name=wires]"));
  return found ? found.content.split(" ") : [];
}

/** The class that gives a thing its wire's colour; whatever else came for a wire gets none. @param {string} wire */
export function wireClass(wire) {
  return /^[a-z][a-z0-9]*$/.test(wire) ? wire : "";
}

/** @param {string} wire */
export function wireMark(wire) {
  return h("span", { class: `wire ${wireClass(wire)}` }, wire);
}

/** @param {string} topic */
export function topicLink(topic) {
  return h("a", { href: link("topics", topic) }, topic);
}

/**
 * @param {string} text
 * @param {"good" | "warn" | "bad" | ""} [mood]
 */
export function badge(text, mood = "") {
  return h("span", { class: `badge ${mood}` }, text);
}

/**
 * How many there are of what should not be.
 * @param {number} value
 * @param {"warn" | "bad"} mood
 */
export function flagged(value, mood) {
  return value ? badge(count(value), mood) : "0";
}

/**
 * A bar, filled so far. With a label it says so itself; without one it stands beside a figure.
 * @param {number} percent
 * @param {string} [label]
 */
export function bar(percent, label = "") {
  const said = label ? { role: "progressbar", "aria-label": label, "aria-valuemin": 0, "aria-valuemax": 100 } : { "aria-hidden": "true" };
  const made = h("div", { class: "bar", ...said }, h("i", {}));
  fillBar(made, percent);
  return made;
}

/** @param {HTMLElement} made @param {number} percent */
export function fillBar(made, percent) {
  const rounded = Math.round(percent);
  /** @type {HTMLElement} */ (made.firstChild).style.width = `${rounded}%`;
  if (made.hasAttribute("role")) made.setAttribute("aria-valuenow", String(rounded));
}

/**
 * One of several views of the same thing, each at an address of its own.
 * @param {string} label
 * @param {[string, string][]} values  with their titles
 * @param {string} chosen
 * @param {(value: string) => string} address
 */
export function choices(label, values, chosen, address) {
  return h("div", { class: "choices", role: "group", "aria-label": label },
    values.map(([value, title]) => h("a", { href: address(value), "aria-current": value === chosen ? "true" : null }, title)));
}

/**
 * What to do where there is nothing to see.
 * @param {string} title
 * @param {...Child} advice
 */
export function empty(title, ...advice) {
  return h("div", { class: "empty" }, h("b", {}, title), ...advice);
}

/**
 * Names and values.
 * @param {[string, Child][]} rows  those without a value are left out
 */
export function facts(rows) {
  const list = h("dl", { class: "facts" });
  for (const [name, value] of rows) {
    if (value !== null && value !== undefined && value !== "" && value !== false) put(list, h("dt", {}, name), h("dd", {}, value));
  }
  return list;
}

/** Which time is shown, where it is not all. @param {import("./range.js").Range | null} shown */
export function onlyOf(shown) {
  return shown ? ` Only those of: ${shown.title.toLowerCase()}.` : "";
}

/**
 * The head of a page.
 * @param {Child} title
 * @param {Child} lead
 * @param {...Child} more
 */
export function heading(title, lead, ...more) {
  return h("div", { class: "head" }, h("div", {}, h("h1", { tabindex: -1 }, title), h("p", { class: "lead" }, lead)), ...more);
}
