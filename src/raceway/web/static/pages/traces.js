// @ts-check
import { get } from "../api.js";
import { chosen, joined } from "../conversations.js";
import { badge, empty, h, heading, momentLink, onlyOf, replace, s, tile, wireClass, wireMark, wireNames } from "../dom.js";
import { count, duration, outOf, time, zone } from "../format.js";
import { times } from "../range.js";
import { link } from "../route.js";
import { Table } from "../table.js";
import { described, instants, place, wires } from "../waterfall.js";

// Requests that are looked at, and traces that are shown.
const LATELY = 200;
const SHOWN = 100;

/** @param {import("../app.js").View} view */
export async function show(view) {
  await (view.argument ? showOne(view) : showRecent(view));
}

/** @param {import("../app.js").View} view */
async function showRecent(view) {
  const note = h("span", { class: "soft", role: "status" });
  const id = /** @type {HTMLInputElement} */ (h("input", { name: "id", placeholder: "correlation id or message id", autocomplete: "off" }));
  const topic = /** @type {HTMLInputElement} */ (h("input", { name: "topic", placeholder: "orders.# or a name", autocomplete: "off" }));
  const wire = select("wire", [["", "any"], ...wireNames().map((each) => /** @type {[string, string]} */ ([each, each])), ["http", "http"]]);
  const outcome = select("outcome", [["", "any"], ["ok", "answered"], ["failed", "failed"], ["open", "no answer"]]);
  const slower = /** @type {HTMLInputElement} */ (h("input", { name: "slower", type: "number", min: 0, placeholder: "0" }));
  const fields = { topic, wire, outcome, slower };
  for (const [name, field] of Object.entries(fields)) field.value = view.query[name] ?? "";
  const table = new Table([
    { title: "Started", cell: (row) => momentLink(link("traces", row.id), row.first.time_us), fixed: true, class: "tight" },
    { title: "Asked", cell: (row) => row.first.topic, fixed: true },
    { title: "Wires", cell: (row) => h("span", { class: "marks" }, row.wires.map(wireMark)) },
    { title: "By", cell: (row) => row.first.producer ?? "", fixed: true },
    { title: "Requests", number: true, cell: (row) => count(row.requests) },
    { title: "Took", number: true, cell: (row) => (row.took_us === null ? "" : duration(row.took_us)) },
    { title: "Outcome", cell: (row) => (row.error ? badge(row.error, "bad") : row.open ? badge("no answer", "warn") : badge("answered", "good")) },
  ], (row) => row.id, empty("No request yet", "A trace starts with a request, or with a message that others name as their parent. Send a request: ", h("code", {}, "raceway request checkin.seat '{}'")), "Recent requests");
  replace(view.root, heading("Traces", "All messages caused by one message, across all wires." + onlyOf(view.range())),
    h("div", { class: "card" }, h("form", {
      class: "filters",
      onsubmit: (/** @type {Event} */ event) => {
        event.preventDefault();
        if (id.value.trim()) location.hash = link("traces", id.value.trim());
      },
    }, h("label", {}, "Id", id), h("div", { class: "actions" }, h("button", {}, "Show")))),
    h("div", { class: "card" }, h("div", { class: "card-head" }, h("h2", {}, "Recent requests"), note), h("form", { class: "filters", "aria-label": "Filter", onsubmit: (/** @type {Event} */ event) => event.preventDefault() },
      h("label", {}, "Topic", topic), h("label", {}, "Wire", wire), h("label", {}, "Outcome", outcome), h("label", {}, "At least, ms", slower)), table.element));
  const load = async () => {
    const asked = { topic: topic.value.trim(), wire: wire.value };
    const [requests, answers] = await Promise.all([get("/api/messages", { kind: "request", limit: LATELY, ...asked, ...times(view.range()) }, view.signal), get("/api/messages", { kind: "response", limit: 2 * LATELY, ...times(view.range()) }, view.signal)]);
    const all = joined(requests.messages, answers.messages);
    const rows = chosen(all, { outcome: outcome.value, slowerMs: Number(slower.value) });
    table.update(rows.slice(0, SHOWN));
    note.textContent = all.length ? `${outOf(Math.min(rows.length, SHOWN), all.length, "trace")} of the newest ${count(requests.messages.length)} requests` : "";
  };
  for (const field of Object.values(fields)) {
    field.addEventListener("input", () => {
      view.remember(Object.fromEntries(Object.entries(fields).map(([name, each]) => [name, each.value])));
      view.attempt(load);
    });
  }
  await load();
  view.live(load, 3);
}

/** @param {string} name @param {[string, string][]} values */
function select(name, values) {
  return /** @type {HTMLSelectElement} */ (h("select", { name }, values.map(([value, title]) => h("option", { value }, title))));
}

/** @param {import("../app.js").View} view */
async function showOne(view) {
  const found = await get(`/api/traces/${encodeURIComponent(view.argument)}`, {}, view.signal);
  /** @type {import("../waterfall.js").Span[]} */
  const spans = found.spans;
  const whole = found.end_us - found.begin_us;
  const failed = spans.filter((span) => span.error).length;
  replace(view.root, heading("Trace", h("span", { class: "mono" }, found.id), h("div", { class: "actions" }, wires(spans).map(wireMark))),
    found.truncated ? h("div", { class: "notice" }, "Incomplete: the trace is longer than the rows that were searched.") : null,
    h("div", { class: "tiles" }, tile("from first to last", duration(whole)), tile("messages", count(found.messages)), tile("wires", count(wires(spans).length)),
      tile("failed", count(failed), failed ? "bad" : "")),
    h("div", { class: "card" }, h("h2", {}, `Started ${time(found.begin_us)} ${zone(found.begin_us)}`),
      spans.length ? h("div", { class: "waterfall" }, axis(whole), h("div", { role: "list" }, spans.map((span) => row(span, found.begin_us, found.end_us))))
        : empty("No messages left", "Retention may have removed its messages.")));
}

/** @param {number} wholeUs */
function axis(wholeUs) {
  return h("div", { class: "span axis", "aria-hidden": "true" }, h("span", {}), h("span", { class: "instants" }, instants(wholeUs).map((us) => h("span", {}, us ? duration(us) : "0"))));
}

/** @param {import("../waterfall.js").Span} span @param {number} beginUs @param {number} endUs */
function row(span, beginUs, endUs) {
  const { left, width } = place(span, beginUs, endUs);
  const took = span.end_us === null ? (span.kind === "request" ? "no answer" : "") : `took ${duration(span.end_us - span.begin_us)}`;
  const after = span.begin_us > beginUs ? `after ${duration(span.begin_us - beginUs)}` : "";
  const label = h("span", { class: "label" }, h("b", {}, span.topic), h("small", {}, described(span)),
    h("small", { class: "took" }, [after, took].filter(Boolean).join(", "), " ", span.error ? badge(span.error, "bad") : null));
  label.style.paddingLeft = `${Math.min(span.depth, 12) * 1.1}rem`;
  const drawing = s("svg", { viewBox: "0 0 1000 24", preserveAspectRatio: "none", "aria-hidden": "true", class: "" },
    [0, 250, 500, 750, 1000].map((x) => s("line", { class: "track", x1: x, x2: x, y1: 0, y2: 24 })),
    s("linearGradient", { id: `way-${span.position}` }, [span.wire, span.answer_wire ?? span.wire].map((wire, at) => s("stop", { class: wireClass(wire), offset: at ? 0.6 : 0.4 }))),
    s("rect", { class: span.error ? "failed" : "", fill: `url(#way-${span.position})`, x: Math.min(994, left * 994), y: 7.5, width: Math.max(6, width * 994), height: 9, rx: 3, ry: 1.5 }));
  return h("a", { class: "span", role: "listitem", href: link("messages", span.position), "data-position": span.position }, label, drawing);
}
