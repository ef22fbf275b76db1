// @ts-check
import { download, get, isDenied } from "../api.js";
import { badge, bar, empty, facts, fillBar, h, heading, momentLink, put, replace, topicLink, wireMark, wireNames } from "../dom.js";
import { bytes, count, payload, time } from "../format.js";
import { link } from "../route.js";
import { Table } from "../table.js";

const PAGE = 50;
// A search that looked at so many rows for one page asks before it goes on.
const PATIENCE = 5_000_000;
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
    { title: "Payload", cell: (row) => h("span", { class: "cut mono" }, row.payload ?? `${bytes(row.payload_bytes)} of bytes`), fixed: true, class: "wide" },
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
  /** @type {HTMLElement} */ (table.ifEmpty).hidden = true;
  const searched = bar(0, "Searched");
  const note = h("span", { class: "soft", role: "status" }, "");
  const stop = /** @type {HTMLButtonElement} */ (h("button", { type: "button", class: "quiet", hidden: true }, "Stop"));
  const more = /** @type {HTMLButtonElement} */ (h("button", { type: "button", class: "quiet", hidden: true }, "Search further back"));
  /** @type {any[]} */
  let rows = [];
  /** @type {number | null} */
  let before = null;
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
        scanned += found.scanned;
        table.update(rows);
        progress(found);
      } while (before !== null && rows.length < wanted && scanned < PATIENCE);
    } catch (error) {
      if (!signal.aborted) throw error;
    } finally {
      stop.hidden = true;
      more.hidden = before === null || view.signal.aborted;
      table.update(rows);
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
    return { ...others, since_us: microseconds(since), until_us: microseconds(until), failed: failed.checked };
  };
  const begin = async () => {
    work.abort();
    rows = [];
    before = null;
    for (const old of view.root.querySelectorAll(":scope > .notice")) old.remove();
    try {
      await run(asked());
    } catch (error) {
      table.update([]);
      if (isDenied(error)) throw error; // the frame asks for a token
      if (!view.signal.aborted) view.root.children[0].after(h("div", { class: "notice bad", role: "alert" }, /** @type {Error} */ (error).message));
    }
  };
  more.addEventListener("click", () => run(asked()));
  const form = h("form", {
    class: "filters",
    onsubmit: (/** @type {Event} */ event) => {
      event.preventDefault();
      history.replaceState(null, "", link("messages", "", { ...filled(), failed: failed.checked }));
      begin();
    },
  }, TEXTS.map(([name, title]) => h("label", {}, title, fields[name])), h("label", {}, "Wire", fields.wire), h("label", {}, "Kind", fields.kind),
  h("label", {}, "From", fields.since), h("label", {}, "Until", fields.until), h("label", { class: "row" }, failed, "Failed answers only"),
  h("div", { class: "actions" }, h("button", {}, "Search"), h("a", { class: "button quiet", href: "#/messages?" }, "Clear")));
  replace(view.root, heading("Messages", "Everything that went over the bus, newest first. A message must match every field that is filled in."),
    h("div", { class: "card" }, form), h("div", { class: "card" }, h("div", { class: "actions" }, searched, note, stop), table.element, more));
  await begin();
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
  const searchLink = (id) => (id ? h("a", { class: "mono", href: link("messages", "", { id }) }, id) : "");
  const save = async () => {
    const address = URL.createObjectURL(await download(`/api/messages/${found.sequence}/payload`));
    h("a", { href: address, download: `message-${found.sequence}.bin` }).click();
    URL.revokeObjectURL(address);
  };
  replace(view.root, heading(`Message ${count(found.sequence)}`, h("span", {}, found.topic), h("div", { class: "actions" },
    found.correlation_id ? h("a", { class: "button", href: link("traces", found.correlation_id) }, "Show its trace") : null,
    h("button", { type: "button", class: "quiet", onclick: save }, "Download payload"))),
  h("div", { class: "cards" }, h("div", { class: "card" }, h("h2", {}, "Message"), facts([
    ["Topic", topicLink(found.topic)], ["Kind", h("span", {}, found.kind, " ", found.error ? badge(found.error, "bad") : null)],
    ["Wire", wireMark(found.wire)], ["Time", time(found.time_us)], ["Offset", found.offset === undefined ? "" : count(found.offset)], ["Sent by", found.producer],
    ["Message id", searchLink(found.message_id)], ["Correlation id", searchLink(found.correlation_id)], ["Parent id", searchLink(found.parent_id)],
    ["Delivered as", found.forwarded_id ? h("span", { class: "mono" }, found.forwarded_id) : ""], ["Answers", found.answers === undefined ? "" : h("a", { href: link("messages", found.answers) }, `message ${count(found.answers)}`)],
    ["Reply to", found.reply_to], ["Routing key", found.routing_key], ["Timeout", found.timeout_ms === undefined ? "" : `${count(found.timeout_ms)} ms`],
    ["Schema", found.schema_id === undefined ? "" : `${found.schema_id}, version ${found.schema_version ?? "latest"}`], ["Encoding", found.encoding],
  ])), h("div", { class: "card" }, h("h2", {}, `Payload: ${bytes(found.payload_bytes)}, ${shown.kind}`), cut ? h("p", { class: "soft" }, "The beginning; download it for the rest.") : null,
    shown.kind === "empty" ? empty("No payload") : h("pre", { class: "payload", tabindex: 0, "aria-label": "Payload" }, shown.text))),
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
