// The console's logic, without a browser: node --test tests/console_js
import assert from "node:assert/strict";
import { test } from "node:test";

const STATIC = new URL("../../src/raceway/web/static/", import.meta.url);
const load = (name) => import(new URL(name, STATIC));
const { chosen, joined } = await load("conversations.js");
const { comparable, difference } = await load("diff.js");
const { draft } = await load("draft.js");
const { EventParser } = await load("events.js");
const format = await load("format.js");
const { failedShare, gathered, layout, shownEdges } = await load("layers.js");
const { headersOf, payloadsOf } = await load("outgoing.js");
const { between, brief, local, range, RANGES, times } = await load("range.js");
const { asking, link, parse, shared } = await load("route.js");
const { ages, area, heightAt, line, moments, nearest, runs, ticks } = await load("scale.js");
const { described, instants, place, wires } = await load("waterfall.js");

test("an address says page, argument and query, whatever is in them", () => {
  for (const argument of ["orders.created", "/shop/orders", "a?b#c%", "<b>&amp;", "ä ö"]) {
    assert.deepEqual(parse(link("topics", argument, { old: 1, empty: "", none: null })), { page: "topics", argument, query: { old: "1" } });
  }
  assert.deepEqual(parse(""), { page: "", argument: "", query: {} });
  assert.deepEqual(parse("#/messages?topic=a%2Bb"), { page: "messages", argument: "", query: { topic: "a+b" } });
  assert.equal(parse("#/topics/%E0%A4%A").argument, "%E0%A4%A");
  assert.deepEqual([asking({}), asking({ failed: false, before: 0, text: "a b" })], ["", "?before=0&text=a+b"]);
});

test("events are whole whatever the pieces they come in", () => {
  const stream = 'event: overview\ndata: {"a":1}\n\n: a comment\n\nid: 7\ndata: two\ndata: lines\r\n\r\nevent: x\nda';
  for (let size = 1; size < 12; size += 1) {
    const parser = new EventParser();
    const found = [];
    for (let at = 0; at < stream.length; at += size) found.push(...parser.feed(stream.slice(at, at + size)));
    assert.deepEqual(found, [{ event: "overview", data: '{"a":1}', id: "" }, { event: "message", data: "two\nlines", id: "7" }], `pieces of ${size}`);
  }
});

test("numbers, sizes and durations are short and honest", () => {
  assert.deepEqual([0, 3.14159, 999, 9999, 12345, 2e6, 3e9].map(format.short), ["0", "3", "999", "9,999", "12.3 k", "2 M", "3 G"]);
  assert.deepEqual([0, 0.52, 12, 45000].map(format.rate), ["0/s", "0.5/s", "12/s", "45 k/s"]);
  assert.deepEqual([0, 1023, 1024, 1536 * 1024].map(format.bytes), ["0 bytes", "1,023 bytes", "1 KiB", "1.5 MiB"]);
  assert.deepEqual([7, 1500, 15_500, 2_500_000, 90e6, 3700e6, 50 * 3600e6].map(format.duration), ["7 µs", "1.5 ms", "15.5 ms", "2.5 s", "1 min 30 s", "1 h 1 min", "2 d 2 h"]);
  assert.deepEqual([8227.650000000001, 0.1 + 0.2, 7, 2 ** 53].map(format.plain), ["8227.65", "0.3", "7", "9007199254740992"]);
  assert.deepEqual([format.counted(1, "topic"), format.counted(0, "topic"), format.outOf(100, 10000, "topic"), format.outOf(1, 1, "peer")], ["1 topic", "0 topics", "100 of 10,000 topics", "1 peer"]);
  assert.equal(format.ago(0, 5), "never");
  assert.equal(format.ago(1e6, 4.9e6), "3 s ago");
});

test("a moment of today needs no date", () => {
  const noon = new Date(2026, 10, 15, 12, 0, 0, 7).getTime() * 1000;
  assert.equal(format.time(noon), "2026-11-15 12:00:00.007");
  assert.equal(format.clock(noon, noon + 3600e6), "12:00:00.007");
  assert.deepEqual(["2026-11-15T15:51:00+00:00", "2026-11-15", "x2026-11-15T15:51:00+00:00"].map(format.instant), ["2026-11-15 15:51:00 UTC", "2026-11-15", "x2026-11-15T15:51:00+00:00"]);
  assert.equal(format.clock(noon, noon + 24 * 3600e6), "2026-11-15 12:00:00.007");
});

test("a payload is shown as what it is", () => {
  assert.deepEqual(format.payload({ payload: "", payload_bytes: 0 }), { kind: "empty", text: "" });
  assert.deepEqual(format.payload({ payload: '{"a":[1]}', payload_bytes: 9 }), { kind: "JSON", text: '{\n  "a": [\n    1\n  ]\n}' });
  assert.equal(format.payload({ payload: '{"n":12345678901234567890}', payload_bytes: 26 }).text, '{"n":12345678901234567890}', "no digit is lost");
  assert.deepEqual(format.payload({ payload: "<b>", payload_bytes: 3 }), { kind: "text", text: "<b>" });
  const { kind, text } = format.payload({ payload_base64: "AAH/QQ==", payload_bytes: 4 });
  assert.equal(kind, "binary");
  assert.match(text, /^00000000  00 01 ff 41 +\.\.\.A$/);
});

test("the old lines of a difference are the old text, the new ones the new text", () => {
  const texts = ["", "a", "a\nb\nc", "a\nx\nc", "b\nc\nd\ne", "c\nb\na", "a\na\na"];
  for (const old of texts) {
    for (const next of texts) {
      const lines = difference(old, next);
      assert.equal(lines.filter(({ mark }) => mark !== "+").map(({ text }) => text).join("\n"), old);
      assert.equal(lines.filter(({ mark }) => mark !== "-").map(({ text }) => text).join("\n"), next);
      if (old === next) assert.ok(lines.every(({ mark }) => mark === " "));
    }
  }
  assert.deepEqual(difference("a\nb\nc", "a\nx\nc").map(({ mark }) => mark).join(""), " -+ ");
});

test("definitions are compared without regard to blanks", () => {
  assert.equal(comparable('{"a":1}'), comparable('{ "a" :\n1 }'));
  assert.equal(comparable("syntax = \"proto3\";"), "syntax = \"proto3\";");
});

test("the axis of a chart has few round numbers and reaches the largest", () => {
  for (const largest of [0, 1, 3, 7, 42, 99, 1000, 123_456]) {
    const found = ticks(largest);
    assert.ok(found.length >= 2 && found.length <= 6, `${largest}: ${found}`);
    assert.ok(found.at(-1) >= largest && found[0] === 0);
    assert.ok(found.every(Number.isInteger));
  }
  for (const seconds of [60, 61, 74, 75, 119, 150, 200, 300]) {
    for (const most of [3, 5]) {
      const found = ages(seconds, most);
      assert.ok(found.length >= 2 && found.length <= most + 1 && found.at(-1) <= seconds, `${seconds}: ${found}`);
    }
  }
  assert.deepEqual([ages(74), ages(300.4), ages(300, 3)], [[0, 15, 30, 45, 60], [0, 60, 120, 180, 240, 300], [0, 120, 240]]);
  assert.equal(line([0, 10], [5, 6]), "M0.0 5.0L10.0 6.0");
  assert.equal(area([0, 10], [5, 6], 9), "M0.0 5.0L10.0 6.0L10.0 9L0.0 9Z");
  assert.equal(area([], [], 9), "");
  const heights = [0, 25, 50, 75, 100].map((x) => heightAt([0, 10], [100, 30], x));
  assert.deepEqual(heights.map(Math.round), [10, 12, 20, 28, 30], "level at both ends, halfway in the middle");
  assert.deepEqual([100, 50, 0].map((x) => Math.round(heightAt([100, 10], [0, 30], x))), [10, 20, 30], "also to the left");
  assert.deepEqual([-5, 4, 6, 99].map((wanted) => nearest([0, 5, 10], wanted)), [0, 1, 1, 2]);
});

test("a graph is laid out from left to right, and circles do not hang it", () => {
  const nodes = ["a", "b", "c", "d"].map((id) => ({ id }));
  const chain = layout(nodes, [{ from: "a", to: "b" }, { from: "b", to: "c" }, { from: "a", to: "c" }]);
  assert.deepEqual(["a", "b", "c", "d"].map((id) => chain.get(id).column), [0, 1, 2, 0]);
  const circle = layout(nodes, [{ from: "a", to: "b" }, { from: "b", to: "c" }, { from: "c", to: "a" }, { from: "d", to: "d" }]);
  assert.equal(new Set([...circle.values()].map(({ column, row }) => `${column}/${row}`)).size, 4, "no two in one place");
  const many = Array.from({ length: 200 }, (_, at) => ({ id: String(at) }));
  const all = many.flatMap(({ id }) => many.slice(0, 20).map((other) => ({ from: id, to: other.id })));
  assert.equal(layout(many, all).size, 200);
});

test("a span lies within its trace", () => {
  const span = (begin_us, end_us, more = {}) => ({ begin_us, end_us, wire: "mb", answer_wire: null, kind: "request", producer: "a", responder: "b", ...more });
  assert.deepEqual(place(span(100, 200), 100, 300), { left: 0, width: 0.5 });
  assert.deepEqual(place(span(250, null), 100, 300), { left: 0.75, width: 0 });
  assert.deepEqual(place(span(50, 900), 100, 300), { left: 0, width: 1 }, "what sticks out is cut");
  assert.deepEqual(place(span(100, 100), 100, 100), { left: 0, width: 0 }, "a trace of one moment");
  assert.deepEqual(instants(400), [0, 100, 200, 300, 400]);
  assert.deepEqual(wires([span(1, 2, { answer_wire: "zbus" }), span(1, 2)]), ["mb", "zbus"]);
  assert.equal(described(span(1, 2, { answer_wire: "zbus" })), "request · mb → zbus · a → b");
  assert.equal(described(span(1, null, { kind: "publish" })), "publish · mb · a");
});

test("requests and answers are joined to conversations", () => {
  const ask = (sequence, id, wire = "mb") => ({ sequence, time_us: sequence * 1000, topic: `t${sequence}`, wire, correlation_id: id });
  const tell = (answers, time_us, wire, error) => ({ sequence: 100 + answers, time_us, topic: "t", wire, answers, error });
  const found = joined([ask(5, "b"), ask(3, "a", "zbus"), ask(2, "a"), ask(1, "c")], [tell(2, 9000, "seneca"), tell(3, 4000, "zbus"), tell(1, 1500, "mb", "NO_SEAT")]);
  assert.deepEqual(found.map(({ id, requests, took_us, error, open }) => [id, requests, took_us, error, open]), [["b", 1, null, "", 1], ["a", 2, 7000, "", 0], ["c", 1, 500, "NO_SEAT", 0]]);
  assert.deepEqual(found[1].wires, ["mb", "zbus", "seneca"]);
  assert.equal(found[1].first.topic, "t2", "the one that began it");
  const ids = (outcome, slowerMs = 0) => chosen(found, { outcome, slowerMs }).map(({ id }) => id).join("");
  assert.deepEqual([ids(""), ids("ok"), ids("failed"), ids("open"), ids("", 1)], ["bac", "a", "c", "b", "ba"]);
});

test("a draft is what its schema admits", () => {
  const person = { type: "object", properties: { id: { type: "integer", minimum: 7 }, kind: { enum: ["a", "b"] }, at: { type: "string", format: "date" }, tags: { type: "array", items: { $ref: "#/$defs/tag" } }, next: { $ref: "#" }, is: { const: 3 } }, $defs: { tag: { type: "string", minLength: 2 } } };
  const made = JSON.parse(draft("json_schema", JSON.stringify(person)));
  assert.deepEqual([made.id, made.kind, made.at, made.tags, made.is], [7, "a", "2026-01-31", ["xx"], 3]);
  const record = { type: "record", name: "R", fields: [{ name: "n", type: "long" }, { name: "s", type: ["null", "string"] }, { name: "e", type: { type: "enum", name: "E", symbols: ["X"] } }, { name: "d", type: "int", default: 4 }] };
  assert.deepEqual(JSON.parse(draft("avro", JSON.stringify(record))), { n: 0, s: null, e: "X", d: 4 });
  assert.deepEqual([draft("protobuf", 'syntax = "proto3";'), draft("json_schema", "{")], ["", ""]);
});

test("a form becomes headers and payloads", () => {
  assert.deepEqual(headersOf("X-Order: 17\n\nx-place: a: b"), { "x-order": "17", "x-place": "a: b" });
  assert.equal(headersOf("x-city: Zürich")["x-city"], "ZÃ¼rich", "the bytes of UTF-8");
  for (const [lines, said] of [["order 17", /is no header/], ["host: x", /must begin with x-/], ["x y: 1", /is no header/]]) assert.throws(() => headersOf(lines), said);
  assert.deepEqual(payloadsOf("n={{n}}", 3, false), ["n=1", "n=2", "n=3"]);
  assert.deepEqual(payloadsOf("a {{n}}\n\nb {{n}}", 2, true), ["a 1", "b 2", "a 3", "b 4"]);
  assert.throws(() => payloadsOf("x", 1001, false), /At most 1000/);
});

test("the time zone is said", () => {
  assert.match(format.zone(Date.now() * 1000), /^UTC([+−]\d\d(:\d\d)?)?$/);
});

test("of many connections the busiest are drawn, or those around a box", () => {
  const all = Array.from({ length: 2000 }, (_, at) => ({ from: "service board", to: `topic t${at}`, label: "", weight: at + 1 }));
  all.push({ from: "topic t3", to: "service printer", label: "", weight: 0 }, { from: "service kiosk", to: "service desk", label: "checkin.seat", weight: 5 });
  const busy = shownEdges(all, "", "", 40);
  assert.deepEqual([busy.edges.length, busy.edges[0].to, busy.left], [40, "topic t1999", 1962]);
  const around = shownEdges(all, "topic t3", "", 40);
  assert.deepEqual(around.edges.map(({ from, to }) => [from, to]), [["service board", "topic t3"], ["topic t3", "service printer"]]);
  assert.deepEqual(shownEdges(all, "", "CHECKIN", 40).edges.map(({ to }) => to), ["service desk"]);
  assert.deepEqual([failedShare(1, 1000), failedShare(5, 80), failedShare(80, 80)], ["under 1 %", "6 %", "100 %"]);
});

test("a range is read from its text, and nothing else is taken for one", () => {
  const now = Date.UTC(2026, 10, 17, 4) * 1000;
  for (const [text, title] of RANGES.slice(1)) assert.equal(range(text, now).title, title);
  assert.deepEqual(times(range("6h", now)), { since_us: now - 6 * 3600e6, until_us: "" });
  const text = between(now - 3600e6, now);
  assert.equal(text, "2026-11-17T03:00:00Z/2026-11-17T04:00:00Z");
  assert.deepEqual(times(range(text, 0)), { since_us: now - 3600e6, until_us: now });
  for (const wrong of ["", undefined, "x", "6", "h6", "6w", "99999h", "2026-11-17T03:00:00Z", "2026-11-17T04:00:00Z/2026-11-17T03:00:00Z", "/"]) assert.equal(range(wrong, now), null, String(wrong));
  assert.deepEqual(times(null), {});
  assert.equal(Date.parse(local(now)) * 1000, now, "as a field of a form reads it");
});

test("a range between two moments has a short title for a narrow field", () => {
  /** @param {number[]} since @param {number[]} until @param {number} today */
  const said = (since, until, today) => brief(range(between(new Date(2026, 10, ...since).getTime() * 1000, new Date(2026, 10, ...until).getTime() * 1000), 0), new Date(2026, 10, today, 23).getTime() * 1000);
  assert.equal(said([17, 7, 22, 5], [17, 9, 30, 0], 17), "07:22 to 09:30");
  assert.equal(said([17, 7, 22, 5], [17, 9, 30, 0], 18), "11-17 07:22 to 09:30");
  assert.equal(said([16, 7, 22], [17, 9, 30], 17), "11-16 to 11-17");
  assert.equal(brief(range("6h", 0), 0), "Last 6 hours");
});

test("every address has the shared range, unless it names another", () => {
  shared.range = "1h";
  assert.deepEqual([link("topics"), link("topics", "a b", { range: "6h" }), link("", "", { range: "" })], ["#/topics?range=1h", "#/topics/a%20b?range=6h", "#/"]);
  shared.range = "";
  assert.equal(link("topics"), "#/topics");
});

test("a line is broken where nothing was measured", () => {
  assert.deepEqual(runs([5, 6, null, 7, 8], []), [[0, 1], [3, 4]]);
  assert.deepEqual(runs([5, 6, 7], [2]), [[0, 1], [2]]);
  assert.deepEqual(runs([], []), []);
});

test("the axis of a range has a few round moments", () => {
  const end = Date.UTC(2026, 10, 17, 4, 7, 31) * 1000;
  for (const seconds of [60, 900, 3600, 6 * 3600, 24 * 3600, 10 * 86_400]) {
    const found = moments(end - seconds * 1e6, end, 6);
    assert.ok(found.length >= 2 && found.length <= 8, `${seconds}: ${found.length}`);
    assert.ok(found.every((us) => us >= end - seconds * 1e6 && us <= end));
    assert.ok(found.every((us) => new Date(us / 1000).getMilliseconds() === 0));
  }
  assert.deepEqual(moments(end - 3600e6, end, 6).map((us) => new Date(us / 1000).getUTCMinutes()), [10, 20, 30, 40, 50, 0]);
});

test("cells of tables that are moments look like moments", () => {
  assert.equal(format.cell("time_us", 1_763_350_000_000_000), "2025-11-17 03:26:40.000 UTC");
  assert.equal(format.cell("made_ms", 1_763_350_000_000), "2025-11-17 03:26:40.000 UTC");
  assert.deepEqual([format.cell("latency_us", 4000), format.cell("count", 1_763_350_000_000_000), format.cell("topic", "a")], ["4000", "1763350000000000", "a"]);
});

test("fans of a graph are gathered to a box, and nothing is lost", () => {
  const edge = (from, to, weight, errors = 0) => ({ from, to, label: "", weight, errors });
  const fan = Array.from({ length: 500 }, (_, at) => edge("a", `t${at}`, 500 - at, 1));
  const found = gathered([...fan, edge("b", "t0", 7), edge("t0", "x", 0)], 6);
  assert.equal(found.length, 6 + 1 + 2);
  const rest = found.find(({ gathered: count }) => count);
  assert.deepEqual([rest.from, rest.gathered, rest.errors], ["a", 494, 494]);
  assert.equal(found.reduce((sum, { weight }) => sum + weight, 0), fan.reduce((sum, { weight }) => sum + weight, 0) + 7);
  const reached = gathered(fan.map(({ from, to, weight }) => edge(to, from, weight)), 6);
  assert.deepEqual([reached.length, reached.at(-1).to, reached.at(-1).gathered], [7, "a", 494]);
  assert.deepEqual(gathered(fan.slice(0, 7), 6), fan.slice(0, 7), "a box for a single one would hide it");
});
