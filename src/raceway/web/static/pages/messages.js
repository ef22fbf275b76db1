// @ts-check
import { download, get } from "../api.js";
import { badge, bar, copyable, copyButton, empty, facts, fillBar, h, heading, momentLink, onlyOf, put, replace, topicLink, wireMark, wireNames } from "../dom.js";
import { bytes, count, payload, time, zone } from "../format.js";
import { times } from "../range.js";
import { isKept, Redrive } from "../redrive.js";
import { link } from "../route.js";
import { Table } from "../table.js";

const PAGE = 50;
// A search that looked at so many rows for one page asks before it goes on.
const PATIENCE = 5_000_000;
// Of what comes while somebody follows: so many a beat are fetched, and so many stay.
const TAIL = 200;
const TAIL_KEPT = 500;
const SETTLED_US = 5e6;
/** @type {[string, string, string][]} */
const TEXTS = [
  ["topic", "Topic", "orders.# or a name"],
  ["id", "Id", "of message or trace"],
  ["producer", "Sent by", "service"],
  ["attribute", "Attribute", "or header"],
  ["attribute_value", "Attribute value", "any"],
  ["path", "JSON path", "$.order.lines[0].sku"],
  ["path_value", "JSON value", "17 or paid"],
  ["text", "Payload contains", "any text"],
];

/** @param {import("../app.js").View} view */
export async function show(view) {
  await (view.argument ? showOne(view) : search(view));
}

/** @param {Node} ifEmpty @param {boolean} [ofOneTopic]  which then need not be named in each row */
export function messageTable(ifEmpty, ofOneTopic = false) {
  return new Table([
    { title: "Time", cell: (row) => momentLink(link("messages", row.sequence), row.time_us), fixed: true, class: "tight" },
    ...(ofOneTopic ? [] : [{ title: "Topic", cell: (/** @type {any} */ row) => row.topic, fixed: true }]),
    { title: "Wire", cell: (row) => wireMark(row.wire), fixed: true },
    { title: "Kind", cell: (row) => h("span", {}, row.kind, row.error ? " " : null, row.error ? badge(row.error, "bad") : null), fixed: true },
    { title: "Sent by", cell: (row) => h("span", { class: "cut" }, row.producer ?? ""), fixed: true, class: "name" },
    { title: "Payload", cell: (row) => h("span", { class: "cut mono" }, row.payload ?? `${bytes(row.payload_bytes)}, binary`), fixed: true, class: "wide" },
  ], (row) => row.sequence, ifEmpty, "Messages");
}

/** @param {import("../app.js").View} view */
async function search(view) {
  /** @type {Record<string, HTMLInputElement | HTMLSelectElement>} */
  const fields = {};
  for (const [name, , hint] of TEXTS) fields[name] = /** @type {HTMLInputElement} */ (h("input", { name, placeholder: hint, autocomplete: "off" }));
  fields.wire = choice("wire", ["", ...wireNames(), "http"]);
  fields.kind = choice("kind", ["", "publish", "request", "response"]);
  fields.since = /** @type {HTMLInputElement} */ (h("input", { name: "since", type: "datetime-local", step: 1 }));
  fields.until = /** @type {HTMLInputElement} */ (h("input", { name: "until", type: "datetime-local", step: 1 }));
  const failed = /** @type {HTMLInputElement} */ (h("input", { type: "checkbox", name: "failed" }));
  for (const [name, field] of Object.entries(fields)) field.value = view.query[name] ?? "";
  failed.checked = view.query.failed === "true";

  const table = messageTable(empty("Nothing found", "No message matches. Leave fields empty to see the newest ones, or send one: ", h("code", {}, "raceway pub baggage.events '{\"bag\": 17}'")));
  const searched = bar(0, "Searched");
  const note = h("span", { class: "soft grows", role: "status" }, "");
  const stop = /** @type {HTMLButtonElement} */ (h("button", { type: "button", class: "quiet", hidden: true }, "Stop"));
  const more = /** @type {HTMLButtonElement} */ (h("button", { type: "button", class: "quiet", hidden: true }, "Search further back"));
  const follow = /** @type {HTMLButtonElement} */ (h("button", { type: "button", class: "quiet" }));
  /** @type {any[]} */
  let rows = [];
  /** @type {number | null} */
  let before = null;
  // Positions below were looked at.
  let edge = 0;
  let seen = 0;
  let isFollowing = view.query.follow === "true";
  let work = new AbortController();
  view.signal.addEventListener("abort", () => work.abort());
  stop.addEventListener("click", () => work.abort());

  /** @param {Record<string, any>} asked */
  const run = async (asked) => {
    work = new AbortController();
    const { signal } = work;
    const wanted = rows.length + PAGE;
    let scanned = 0;
    stop.hidden = false;
    more.hidden = true;
    try {
      do {
        const found = await get("/api/messages", { ...asked, before, limit: wanted - rows.length }, signal);
        rows = [...rows, ...found.messages];
        before = found.before;
        edge = Math.max(edge, found.newest);
        scanned += found.scanned;
        // None so far is not none.
        if (rows.length || before === null || scanned >= PATIENCE) table.update(rows);
        progress(found);
      } while (before !== null && rows.length < wanted && scanned < PATIENCE);
    } catch (error) {
      if (!signal.aborted) throw error;
      if (!rows.length) table.reset("Stopped");
    } finally {
      stop.hidden = true;
      more.hidden = before === null || view.signal.aborted;
    }
  };
  /** @param {any} found */
  const progress = (found) => {
    const whole = found.newest - found.oldest;
    const done = found.before === null ? whole : found.newest - found.before;
    fillBar(searched, whole ? (100 * done) / whole : 100);
    note.textContent = `${count(rows.length)} found, ${count(done)} of ${count(whole)} rows searched`;
  };
  const filled = () => Object.fromEntries(Object.entries(fields).map(([name, field]) => [name, field.value.trim()]));
  const asked = () => {
    const { since, until, ...others } = filled();
    const shared = times(view.range());
    return { ...others, since_us: microseconds(since) || shared.since_us, until_us: microseconds(until) || shared.until_us, failed: failed.checked };
  };
  const begin = async () => {
    work.abort();
    rows = [];
    before = null;
    table.reset();
    note.textContent = "";
    fillBar(searched, 0);
    await run(asked());
  };
  /** What came since, by the bus's clock; rows are stored a little after their time. @param {any} now */
  const tail = async (now) => {
    if (!isFollowing || !stop.hidden) return;
    const wanted = asked();
    const found = await get("/api/messages", { ...wanted, since_us: Math.max(Number(wanted.since_us ?? 0), now.time_us - SETTLED_US), limit: TAIL, budget: 50_000 }, view.signal);
    const fresh = found.messages.filter((/** @type {any} */ row) => row.sequence >= edge);
    if (!isFollowing) return;
    edge = found.newest;
    seen += fresh.length;
    rows = [...fresh, ...rows].slice(0, TAIL_KEPT);
    table.update(rows);
    note.textContent = `Following: ${count(seen)} came${found.before === null ? "" : ", more than are shown"}`;
  };
  const tellFollowing = () => {
    follow.textContent = isFollowing ? "Pause" : "Follow";
    searched.hidden = isFollowing;
    more.hidden = isFollowing || before === null;
    note.textContent = isFollowing ? "Following: 0 came" : note.textContent;
  };
  follow.addEventListener("click", () => {
    isFollowing = !isFollowing;
    seen = 0;
    remember();
    tellFollowing();
    if (!isFollowing) note.textContent = "Paused; Follow goes on with what comes from then on";
  });
  const remember = () => view.remember({ ...filled(), failed: failed.checked, follow: isFollowing });
  more.addEventListener("click", () => view.attempt(() => run(asked())));
  const unfold = h("button", { type: "button", class: "quiet unfold", onclick: () => fold(!form.classList.contains("folded")) }, "More fields");
  const form = h("form", {
    class: "filters",
    onsubmit: (/** @type {Event} */ event) => {
      event.preventDefault();
      remember();
      view.attempt(begin);
    },
  }, TEXTS.map(([name, title]) => h("label", {}, title, fields[name])), h("label", {}, "Wire", fields.wire), h("label", {}, "Kind", fields.kind),
  h("label", {}, "From", fields.since), h("label", {}, "Until", fields.until), h("label", { class: "row" }, failed, "Failed answers only"),
  h("div", { class: "actions" }, h("button", {}, "Search"), h("a", { class: "button quiet", href: "#/messages?" }, "Clear"), unfold));
  /** On a phone all fields would fill the screen before the first message. @param {boolean} folded */
  const fold = (folded) => {
    form.classList.toggle("folded", folded);
    unfold.setAttribute("aria-expanded", String(!folded));
    unfold.textContent = folded ? "More fields" : "Fewer fields";
  };
  fold(!Object.keys(view.query).some((name) => !["topic", "id", "follow", "range"].includes(name)));
  replace(view.root, heading("Messages", "Everything that went over the bus, newest first. A message must match every field that is filled in. Times are " + zone(Date.now() * 1000) + "." + onlyOf(view.range())),
    h("div", { class: "card" }, form), h("div", { class: "card" }, h("div", { class: "actions" }, searched, note, stop, follow), table.element, more));
  follow.textContent = isFollowing ? "Pause" : "Follow";
  await begin();
  tellFollowing();
  view.live(tail);
}

/** @param {string} name @param {string[]} values */
function choice(name, values) {
  return /** @type {HTMLSelectElement} */ (h("select", { name }, values.map((value) => h("option", { value }, value || "any"))));
}

/** @param {string} local  as a field of date and time says it */
function microseconds(local) {
  return local ? new Date(local).getTime() * 1000 : "";
}

/** @param {import("../app.js").View} view */
async function showOne(view) {
  const found = await get(`/api/messages/${encodeURIComponent(view.argument)}`, {}, view.signal);
  const shown = payload(found);
  const cut = (found.payload?.length ?? 0) < found.payload_bytes && found.payload_bytes > 1024 * 1024;
  const attributes = Object.entries(found.attributes ?? {});
  /** @param {string | null | undefined} id */
  const searchLink = (id) => (id ? h("span", { class: "copyable" }, h("a", { class: "mono", href: link("messages", "", { id }) }, id), " ", copyButton(id, "id")) : "");
  const save = () => view.attempt(async () => {
    const address = URL.createObjectURL(await download(`/api/messages/${found.sequence}/payload`));
    h("a", { href: address, download: `message-${found.sequence}.bin` }).click();
    URL.revokeObjectURL(address);
  });
  /** @param {number | undefined} position @param {"prev" | "next"} rel @param {string} title */
  const neighbour = (position, rel, title) => (position === undefined ? null : h("a", { class: "button quiet", rel, href: link("messages", position), title: `${title} message of ${found.topic}` }, title));
  const redrive = new Redrive(async () => {});
  replace(view.root, heading(`Message ${count(found.sequence)}`, h("span", {}, found.topic), h("div", { class: "actions" },
    neighbour(found.previous, "prev", "Previous"), neighbour(found.following, "next", "Next"),
    isKept(found) ? [redrive.button(found.sequence), redrive.editor(found.sequence)] : null,
    found.correlation_id ? h("a", { class: "button", href: link("traces", found.correlation_id) }, "Show its trace") : null,
    h("button", { type: "button", class: "quiet", onclick: save }, "Download payload"))),
  redrive.said, h("div", { class: "cards" }, h("div", { class: "card" }, h("h2", {}, "Message"), facts([
    ["Topic", topicLink(found.topic)], ["Kind", h("span", {}, found.kind, " ", found.error ? badge(found.error, "bad") : null)],
    ["Wire", wireMark(found.wire)], ["Time", `${time(found.time_us)} ${zone(found.time_us)}`], ["Offset", found.offset === undefined ? "" : count(found.offset)], ["Sent by", found.producer],
    ["Message id", searchLink(found.message_id)], ["Correlation id", searchLink(found.correlation_id)], ["Parent id", searchLink(found.parent_id)],
    ["Delivered as", found.forwarded_id ? copyable(found.forwarded_id, "id") : ""], ["Answers", found.answers === undefined ? "" : h("a", { href: link("messages", found.answers) }, `message ${count(found.answers)}`)],
    ["Reply to", found.reply_to], ["Routing key", found.routing_key], ["Timeout", found.timeout_ms === undefined ? "" : `${count(found.timeout_ms)} ms`],
    ["Schema", found.schema_id === undefined ? "" : h("span", {}, found.subject ? h("a", { href: link("schemas", found.subject, { new: found.schema_version }) }, found.subject) : `id ${found.schema_id}`, `, version ${found.schema_version ?? "latest"}`)], ["Encoding", found.encoding],
  ])), h("div", { class: "card" }, h("div", { class: "card-head" }, h("h2", {}, `Payload: ${bytes(found.payload_bytes)}, ${shown.kind}`), shown.kind === "empty" ? null : copyButton(found.payload ?? shown.text, "payload")), cut ? h("p", { class: "soft" }, "The beginning; download it for the rest.") : null,
    shown.kind === "empty" ? empty("No payload") : h("pre", { class: shown.kind === "binary" ? "payload hex" : "payload", tabindex: 0, role: "region", "aria-label": "Payload" }, shown.text))),
  attributes.length ? h("div", { class: "card" }, h("h2", {}, "Attributes"), facts(attributes)) : null,
  found.hops?.length ? h("div", { class: "card" }, h("h2", {}, "Hops"), hops(found.hops)) : null);
}

/** @param {{sid?: string, rid?: string, mid?: string, tms?: (number | null)[]}[]} found */
function hops(found) {
  const list = h("ol", {});
  for (const hop of found) {
    const times = (hop.tms ?? []).filter((each) => each !== null);
    const took = times.length > 1 ? ` in ${/** @type {number} */ (times[times.length - 1]) - /** @type {number} */ (times[0])} ms` : "";
    put(list, h("li", {}, `${hop.sid || "?"} → ${hop.rid || "?"}${took}`));
  }
  return list;
}
