// @ts-check
// The frame: which page is shown, live figures for it, what is said while the bus is away, the theme, and who is signed in.
//
// The overview's script comes with the page. Those of the other pages are fetched when they are first shown, or when
// the browser has nothing else to do: then they are there, also while the bus is not.

import { ApiError, AwayError, isDenied, token, watch } from "./api.js";
import { Away } from "./away.js";
import { h, loading, replace } from "./dom.js";
import { rate } from "./format.js";
import { icon } from "./icons.js";
import { listenToKeys } from "./keys.js";
import { Picker } from "./picker.js";
import { range } from "./range.js";
import { link, parse, shared } from "./route.js";
import { askWho, denied, tellWho } from "./signing.js";
import * as overview from "./pages/overview.js";

/**
 * @typedef {object} View  what a page gets to work with
 * @property {HTMLElement} root
 * @property {string} argument
 * @property {Record<string, string>} query
 * @property {AbortSignal} signal  aborted when another page is shown
 * @property {() => import("./range.js").Range | null} range  the time that is to be shown; null: now
 * @property {(query: Record<string, any>) => void} remember  what is chosen on the page, in its address
 * @property {(take: (overview: any) => void | Promise<void>, every?: number) => void} live  called with each overview of the bus, or with every n-th
 * @property {(take: () => void) => void} lost  called when the bus goes away; `live` goes on when it is back
 * @property {(work: () => void | Promise<void>) => Promise<void>} attempt  do something that may fail; why is said above the page
 *
 * @typedef {{show: (view: View) => Promise<void>}} Page
 */

/** Letter behind `g`, name, title. @type {[string, [string, string, string][]][]} */
const GROUPS = [
  ["Traffic", [["o", "", "Overview"], ["t", "topics", "Topics"], ["u", "subscriptions", "Subscriptions"], ["m", "messages", "Messages"], ["n", "publish", "Publish"], ["r", "traces", "Traces"], ["s", "services", "Services"]]],
  ["Contracts", [["c", "schemas", "Schemas"], ["d", "rejected", "Rejected"]]],
  ["Bus", [["p", "peers", "Peers"], ["i", "pipeline", "Tables"], ["l", "journal", "Journal"], ["k", "cluster", "Cluster"], ["h", "changes", "Changes"], ["a", "api", "API"]]],
];
const PAGES = GROUPS.flatMap(([, pages]) => pages);
const THEME = "raceway-theme";

const main = /** @type {HTMLElement} */ (document.getElementById("main"));
const nav = /** @type {HTMLElement} */ (document.getElementById("nav"));
const pulse = /** @type {HTMLElement} */ (document.getElementById("pulse"));
const who = /** @type {HTMLElement} */ (document.getElementById("who"));
const picker = new Picker(/** @type {HTMLSelectElement} */ (document.getElementById("range")), chooseRange);
const away = new Away(/** @type {HTMLElement} */ (document.getElementById("away")));

/** @type {Map<string, Promise<Page>>} */
const scripts = new Map([["", Promise.resolve(overview)]]);
let tries = 0;
/** @type {((overview: any) => void)[]} */
let watchers = [];
/** @type {(() => void)[]} */
let losers = [];
let current = new AbortController();
let moved = false;
// The page could not be shown for want of an answer; it is tried again with the next sign of life.
let isOwed = false;
let rhythmMs = 1000;
let version = "";

/** @param {string} name @returns {Promise<Page>} */
function script(name) {
  const found = scripts.get(name);
  if (found) return found;
  // Browsers remember that a script could not be fetched, by its address.
  const fetched = import(`./pages/${name}.js${tries ? `?${tries}` : ""}`).catch(() => {
    tries += 1;
    scripts.delete(name);
    throw new AwayError();
  });
  scripts.set(name, fetched);
  return fetched;
}

/** @param {string} text */
function chooseRange(text) {
  const { page, argument, query } = parse(location.hash);
  shared.range = text;
  location.hash = link(page, argument, { ...query, range: text });
}

/** Where the address leads. One that says no time gets that of the page before. */
function destination() {
  const place = parse(location.hash);
  place.query.range ??= shared.range;
  shared.range = range(place.query.range, 0) ? place.query.range : "";
  const address = link(place.page, place.argument, { ...place.query, range: shared.range });
  if (shared.range && address !== location.hash) history.replaceState(null, "", address);
  picker.tell(shared.range);
  return place;
}

async function navigate() {
  const place = destination();
  const [, name, title] = PAGES.find(([, known]) => known === place.page) ?? ["", null, "No such page"];
  current.abort();
  current = new AbortController();
  watchers = [];
  losers = [];
  isOwed = false;
  const { signal } = current;
  mark(name);
  document.title = `${place.argument || title} · Raceway`;
  // A root of its own for each visit: what an earlier page still does ends up nowhere.
  const root = h("div", {}, loading(title));
  replace(main, root);
  let address = location.hash;
  const remember = (/** @type {Record<string, any>} */ query) => {
    // The address changes before this page hears of it: whoever is on the way to another one is not brought back.
    if (location.hash !== address) return;
    history.replaceState(null, "", link(place.page, place.argument, query));
    address = location.hash;
  };
  const attempt = async (/** @type {() => void | Promise<void>} */ work) => {
    try {
      await work();
      root.querySelector(":scope > .fault")?.remove();
    } catch (error) {
      if (!signal.aborted) explain(root, error);
    }
  };
  try {
    if (name === null) noSuchPage(root, place.page);
    else {
      const page = await script(name);
      if (signal.aborted) return;
      await page.show({ root, argument: place.argument, query: place.query, signal, remember, attempt, range: () => range(shared.range, Date.now() * 1000), live: (take, every = 1) => live(take, every, signal, root), lost: (take) => losers.push(take) });
    }
  } catch (error) {
    if (!signal.aborted) {
      explain(root, error);
      isOwed = error instanceof AwayError;
    }
  }
  // Whoever is in the page already, because its last part took a while, stays there.
  if (!signal.aborted && moved && !root.contains(document.activeElement)) root.querySelector("h1")?.focus();
  moved = true;
}

/** @param {HTMLElement} root @param {string} wanted */
function noSuchPage(root, wanted) {
  replace(root, h("h1", { tabindex: -1 }, "No such page"), h("p", {}, `The console has no page “${wanted}”. `, h("a", { href: "#/" }, "Go to the overview"), "."));
}

/** @param {string | null} name */
function mark(name) {
  for (const link of nav.querySelectorAll("a")) link.removeAttribute("aria-current");
  const link = /** @type {HTMLElement | null} */ (nav.querySelector(`[data-page="${name}"]`));
  link?.setAttribute("aria-current", "page");
  link?.scrollIntoView({ block: "nearest", inline: "nearest" });
  if (link?.matches("#nav > a:first-of-type")) nav.scrollTop = 0; // with the name of its group
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
  for (const each of root.querySelectorAll(".loading")) {
    // Whoever is asked to sign in first needs to know no more.
    if (isDenied(error) && each.parentElement === root) each.remove();
    else {
      each.classList.add("failed");
      each.textContent = "Not loaded";
    }
  }
  const fault = isDenied(error) ? denied(/** @type {ApiError} */ (error))
    : h("div", { class: "notice bad fault", role: "alert" }, error instanceof AwayError ? "The bus does not answer. This is loaded when it is back." : error instanceof Error ? error.message : String(error));
  root.prepend(fault);
  if (!root.querySelector("h1")) root.prepend(h("h1", { tabindex: -1 }, isDenied(error) ? nav.querySelector("[aria-current]")?.textContent : document.title.split(" · ")[0]));
  if (!(error instanceof ApiError || error instanceof AwayError)) console.error(error); // a fault of these scripts
  return fault;
}

/** @param {boolean} connected @param {ApiError} [error] */
function tell(connected, error) {
  const isUp = connected || isDenied(error);
  pulse.className = `pulse ${connected ? "on" : "off"}`;
  pulse.textContent = connected ? "live" : isDenied(error) ? "not signed in" : "no answer";
  if (isUp) back();
  else {
    away.begin(error?.message);
    for (const lost of losers) lost();
  }
}

function back() {
  if (!away.isAway) return;
  away.end();
  main.querySelector(":scope > div > .fault:not(.sign-in)")?.remove();
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

/** @param {string} event @param {any} found */
function take(event, found) {
  if (event !== "overview") return;
  rhythmMs = found.live_ms;
  if (version && version !== found.version) away.outdated(found.version);
  version ||= found.version;
  pulse.textContent = `live · ${rate(Object.values(/** @type {Record<string, number>} */ (found.rates)).reduce((sum, each) => sum + each, 0))}`;
  if (isOwed) navigate();
  for (const watcher of watchers) watcher(found);
}

setTheme();
for (const [group, pages] of GROUPS) {
  nav.append(h("span", { class: "group", "aria-hidden": "true" }, group));
  for (const [, name, title] of pages) nav.append(h("a", { href: `#/${name}`, "data-page": name }, icon(name || "overview"), title));
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
listenToKeys(PAGES);
watch("/api/live", take, tell, { rhythm: () => rhythmMs });
tellWho(who);
await navigate();
// Behind what is shown: the other pages, so that none is missing when the bus goes away.
(globalThis.requestIdleCallback ?? setTimeout)(() => PAGES.forEach(([, name]) => script(name).catch(() => {})));
