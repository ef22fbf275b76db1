// @ts-check
// The frame: which page is shown, live figures for it, the theme, and who is signed in.

import { ApiError, isDenied, token, watch } from "./api.js";
import { h, replace } from "./dom.js";
import { rate } from "./format.js";
import { icon } from "./icons.js";
import { parse } from "./route.js";
import { askWho, denied, tellWho } from "./signing.js";
import * as api from "./pages/api.js";
import * as journal from "./pages/journal.js";
import * as messages from "./pages/messages.js";
import * as overview from "./pages/overview.js";
import * as peers from "./pages/peers.js";
import * as pipeline from "./pages/pipeline.js";
import * as rejected from "./pages/rejected.js";
import * as schemas from "./pages/schemas.js";
import * as services from "./pages/services.js";
import * as topics from "./pages/topics.js";
import * as traces from "./pages/traces.js";

/**
 * @typedef {object} View  what a page gets to work with
 * @property {HTMLElement} root
 * @property {string} argument
 * @property {Record<string, string>} query
 * @property {AbortSignal} signal  aborted when another page is shown
 * @property {(take: (overview: any) => void | Promise<void>, every?: number) => void} live  called with each overview of the bus, or with every n-th
 *
 * @typedef {{show: (view: View) => Promise<void>}} Page
 */

/** @type {[string, [string, string, Page][]][]} */
const GROUPS = [
  ["Traffic", [["", "Overview", overview], ["topics", "Topics", topics], ["messages", "Messages", messages], ["traces", "Traces", traces], ["services", "Services", services]]],
  ["Contracts", [["schemas", "Schemas", schemas], ["rejected", "Rejected", rejected]]],
  ["Bus", [["peers", "Peers", peers], ["pipeline", "Pipeline", pipeline], ["journal", "Journal", journal], ["api", "API", api]]],
];
const PAGES = GROUPS.flatMap(([, pages]) => pages);
const THEME = "raceway-theme";

const main = /** @type {HTMLElement} */ (document.getElementById("main"));
const nav = /** @type {HTMLElement} */ (document.getElementById("nav"));
const pulse = /** @type {HTMLElement} */ (document.getElementById("pulse"));
const who = /** @type {HTMLElement} */ (document.getElementById("who"));

/** @type {((overview: any) => void)[]} */
let watchers = [];
let current = new AbortController();
let moved = false;

async function navigate() {
  const place = parse(location.hash);
  const [name, title, page] = PAGES.find(([known]) => known === place.page) ?? PAGES[0];
  current.abort();
  current = new AbortController();
  watchers = [];
  const { signal } = current;
  mark(name);
  document.title = `${place.argument || title} · Raceway`;
  // A root of its own for each visit: what an earlier page still does ends up nowhere.
  const root = h("div", {});
  replace(main, root);
  try {
    await page.show({ root, argument: place.argument, query: place.query, signal, live: (take, every = 1) => live(take, every, signal, root) });
  } catch (error) {
    if (!signal.aborted) explain(root, error);
  }
  if (!signal.aborted && moved) root.querySelector("h1")?.focus();
  moved = true;
}

/** @param {string} name */
function mark(name) {
  for (const link of nav.querySelectorAll("a")) link.removeAttribute("aria-current");
  const link = /** @type {HTMLElement} */ (nav.querySelector(`[data-page="${name}"]`));
  link.setAttribute("aria-current", "page");
  link.scrollIntoView({ block: "nearest", inline: "nearest" });
}

/**
 * @param {(overview: any) => void | Promise<void>} take
 * @param {number} every
 * @param {AbortSignal} signal
 * @param {HTMLElement} root
 */
function live(take, every, signal, root) {
  let busy = false;
  let beats = 0;
  /** @type {Element | null} */
  let fault = null;
  const watcher = async (/** @type {any} */ found) => {
    beats += 1;
    if (busy || beats < every) return;
    busy = true;
    beats = 0;
    try {
      await take(found);
      fault?.remove();
    } catch (error) {
      if (!signal.aborted) fault = explain(root, error);
    }
    busy = false;
  };
  watchers.push(watcher);
}

/** Never a blank page: what is there stays, and why there is no more stands above it. @param {HTMLElement} root @param {unknown} error */
function explain(root, error) {
  const before = root.querySelector(":scope > .fault");
  if (isDenied(error) && before?.matches(".sign-in")) return before; // somebody may be typing
  before?.remove();
  const fault = isDenied(error) ? denied(/** @type {ApiError} */ (error))
    : h("div", { class: "notice bad fault", role: "alert" }, error instanceof ApiError ? error.message : "The bus does not answer. Is it still running?");
  root.prepend(fault);
  if (!root.querySelector("h1")) root.prepend(h("h1", { tabindex: -1 }, isDenied(error) ? nav.querySelector("[aria-current]")?.textContent : document.title.split(" · ")[0]));
  return fault;
}

/** @param {boolean} connected @param {ApiError} [error] */
function tell(connected, error) {
  pulse.className = `pulse ${connected ? "on" : "off"}`;
  pulse.textContent = connected ? "live" : isDenied(error) ? "not signed in" : "not connected";
}

function setTheme() {
  const dark = matchMedia("(prefers-color-scheme: dark)");
  const apply = () => {
    const wished = localStorage.getItem(THEME);
    document.documentElement.dataset.theme = wished ?? (dark.matches ? "dark" : "light");
  };
  dark.addEventListener("change", apply);
  document.getElementById("theme")?.addEventListener("click", () => {
    localStorage.setItem(THEME, document.documentElement.dataset.theme === "dark" ? "light" : "dark");
    apply();
  });
  apply();
}

setTheme();
for (const [group, pages] of GROUPS) {
  nav.append(h("span", { class: "group", "aria-hidden": "true" }, group));
  for (const [name, title] of pages) nav.append(h("a", { href: `#/${name}`, "data-page": name }, icon(name || "overview"), title));
}
who.addEventListener("click", askWho);
token.changes.addEventListener("change", () => {
  tellWho(who);
  navigate();
});
addEventListener("hashchange", () => location.hash === "#main" || navigate());
document.querySelector(".skip")?.addEventListener("click", (event) => {
  event.preventDefault();
  main.focus();
});
// A slash goes to the first field of the page, as in many a program.
addEventListener("keydown", (event) => {
  const typing = event.target instanceof HTMLElement && event.target.matches("input, textarea, select");
  if (event.key !== "/" || typing || event.ctrlKey || event.metaKey || event.altKey) return;
  const field = /** @type {HTMLElement | null} */ (main.querySelector("input, select, textarea"));
  if (field) {
    event.preventDefault();
    field.focus();
  }
});
watch("/api/live", (event, found) => {
  if (event !== "overview") return;
  pulse.textContent = `live · ${rate(Object.values(/** @type {Record<string, number>} */ (found.rates)).reduce((sum, each) => sum + each, 0))}`;
  for (const watcher of watchers) watcher(found);
}, tell);
tellWho(who);
navigate();
