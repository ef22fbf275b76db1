// @ts-check
import { get } from "../api.js";
import { choices, empty, flagged, h, heading, loading, onlyOf, renew, replace, s, topicLink, wireClass, wireMark } from "../dom.js";
import { count, duration, time } from "../format.js";
import { failedShare, gathered, layout, shownEdges } from "../layers.js";
import { times } from "../range.js";
import { link } from "../route.js";
import { heightAt } from "../scale.js";
import { Table } from "../table.js";

const BOX = { width: 158, height: 46, least: 262, most: 340, down: 74, margin: 10 };
// More than this is no picture any more; the tables have the rest.
const MOST_EDGES = 40;
// Of what leaves or reaches a box so much is drawn, the rest as one: among all boxes, and around a single one.
const FAN = 6;
const FOCUSED_FAN = 14;
// So much is asked for, and so much of it listed.
const ASKED = 500;
const LISTED = 60;
const LETTERS = 20;
const LABEL = 17;
// Width of a letter of a label, at most; where in a gap labels are tried; how far a line within a column swings out.
const LETTER = 6.6;
const ALONG = [0.5, 0.25, 0.75, 0, 1];
const BULGE = 60;

/**
 * @typedef {{from: string, to: string, label: string, wire: string, errors: number, weight: number, gathered?: number}} Edge  `weight` 0: who listens; `gathered`: stands for so many
 * @typedef {{id: string, name: string, kind: "service" | "topic" | "rest", under: string, around?: string}} Box  `around`: what it is a rest of
 * @typedef {{x: number, y: number}} Corner
 * @typedef {{x: number, y: number, width: number, height: number}} Area  `x`: its middle, `y`: its upper end
 */

/** @type {[string, string][]} */
const FROM = [["", "Lately"], ["table", "All hours"]];

/** @param {import("../app.js").View} view */
export async function show(view) {
  const { source = "journal" } = view.query;
  const isTable = source === "table";
  const picture = h("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": "Service graph" }, loading("the graph"));
  const lead = h("p", { class: "lead" });
  const exchanges = new Table([
    { title: "Asks", cell: (row) => row.requester, fixed: true },
    { title: "Under", cell: (row) => topicLink(row.topic), fixed: true },
    { title: "Answers", cell: (row) => row.responder, fixed: true },
    { title: "Wires", cell: (row) => h("span", {}, wireMark(row.wire), row.answer_wire === row.wire ? null : " → ", row.answer_wire === row.wire ? null : wireMark(row.answer_wire)), fixed: true },
    { title: "Requests", number: true, cell: (row) => count(row.count) },
    { title: "Failed", number: true, cell: (row) => flagged(row.errors, "bad") },
    { title: isTable ? "Typical" : "Median", number: true, cell: (row) => duration(row.median_us) },
    { title: isTable ? "p99 of the worst hour" : "Slowest", number: true, cell: (row) => duration(row.slowest_us) },
  ], (row) => [row.requester, row.responder, row.topic, row.wire, row.answer_wire].join("\n"),
  empty("No answered requests recently", "Send a request: ", h("code", {}, "raceway request checkin.seat '{}'")), "Requests");
  const sources = new Table([
    { title: "Publishes", cell: (row) => row.producer, fixed: true },
    { title: "To", cell: (row) => topicLink(row.topic), fixed: true },
    { title: "Wire", cell: (row) => wireMark(row.wire), fixed: true },
    { title: "Messages", number: true, cell: (row) => count(row.count) },
  ], (row) => [row.producer, row.topic, row.wire].join("\n"), empty("No publishes recently"), "Publishes");
  const from = h("div", {}, choices("From", FROM, view.query.source ?? "", (value) => link("services", "", { source: value })));
  const publishes = h("div", { class: "card", hidden: isTable }, h("h2", {}, "Publishes"), sources.element);
  const open = h("p", { class: "soft", hidden: true });
  const rest = h("p", { class: "soft", hidden: true });
  const find = /** @type {HTMLInputElement} */ (h("input", { type: "search", name: "find", placeholder: "part of a name", autocomplete: "off" }));
  find.addEventListener("input", () => view.attempt(load));
  const focused = view.query.focus ? h("span", {}, "Around ", h("b", {}, view.query.focus.replace(/^\w+ /, "")), " only. ", h("a", { href: link("services", "", { source: view.query.source }) }, "Show all")) : h("span", { class: "soft" }, "A box leads to what is around it.");
  replace(view.root, heading("Services", "", from), h("div", { class: "card" }, h("div", { class: "card-head" }, h("form", { class: "filters", onsubmit: (/** @type {Event} */ event) => event.preventDefault() }, h("label", {}, "Find", find)), focused), picture), h("div", { class: "card" }, h("h2", {}, "Requests"), exchanges.element, open), publishes, rest);
  view.root.querySelector(".lead")?.replaceWith(lead);
  let drawn = "";
  const load = async () => {
    const { flows, listeners, has_table: hasTable } = await get("/api/graph", { source, limit: ASKED, ...times(view.range()) }, view.signal);
    from.hidden = !hasTable;
    lead.textContent = `${described(flows, isTable)}.${onlyOf(view.range())}`;
    const unanswered = Object.entries(flows.unanswered);
    open.hidden = !unanswered.length;
    open.textContent = `Without an answer${isTable ? "" : " so far"}: ${unanswered.map(([topic, missed]) => `${topic} ${count(missed)}`).join(", ")}`;
    exchanges.update(flows.exchanges.slice(0, LISTED));
    sources.update(flows.sources.slice(0, LISTED));
    rest.textContent = unlisted(flows);
    rest.hidden = !rest.textContent;
    const shape = JSON.stringify([view.query.focus, find.value, flows.exchanges.map((/** @type {any} */ each) => [each.requester, each.responder, each.topic, each.count]), flows.sources, listeners]);
    if (shape !== drawn) renew(picture, draw(flows, listeners, picture.clientWidth, view.query.focus ?? "", find.value.trim(), (focus) => link("services", "", { source: view.query.source, focus })));
    drawn = shape;
  };
  await load();
  view.live(load, 3);
}

/** What the tables do not list. @param {any} flows */
function unlisted(flows) {
  const left = flows.pairs - Math.min(LISTED, flows.exchanges.length) - Math.min(LISTED, flows.sources.length);
  return left > 0 ? `${count(left)} more pairs with less traffic are not listed; find them by name in the picture, or with a search of messages.` : "";
}

/** @param {any} flows @param {boolean} isTable */
function described(flows, isTable) {
  if (isTable && flows.since_us) return `Requests between services, from the pipeline's table gold.service_graph, since ${time(flows.since_us).slice(0, 16)}`;
  return flows.stop > flows.first ? `Traffic between services, from the last ${count(flows.stop - flows.first)} rows, since ${time(flows.since_us).slice(0, 19)}` : "Traffic between services";
}

/**
 * @param {any} flows
 * @param {any[]} listeners
 * @param {number} room
 * @param {string} focus  the box around which things are shown; empty: all
 * @param {string} text  only what has it in a name
 * @param {(id: string) => string} address  of the same around another box
 */
function draw(flows, listeners, room, focus, text, address) {
  /** @type {Map<string, Box>} */
  const nodes = new Map();
  /** @type {Edge[]} */
  const all = [];
  /** @param {"service" | "topic"} kind @param {string} name @param {string} under */
  const node = (kind, name, under) => {
    const id = `${kind} ${name}`;
    if (!nodes.has(id)) nodes.set(id, { id, name, kind, under });
    return id;
  };
  for (const each of flows.exchanges) {
    all.push({ from: node("service", each.requester, each.wire), to: node("service", each.responder, each.answer_wire), wire: each.wire,
      label: each.topic, errors: each.errors, weight: each.count });
  }
  for (const each of flows.sources) {
    all.push({ from: node("service", each.producer, each.wire), to: node("topic", each.topic, "topic"), wire: each.wire, label: "", errors: 0, weight: each.count });
  }
  for (const each of listeners) {
    if (nodes.has(`topic ${each.topic}`)) all.push({ from: `topic ${each.topic}`, to: node("service", each.name, each.wire), wire: each.wire, label: "", errors: 0, weight: 0 });
  }
  const { edges: fitting, left } = shownEdges(all, focus, text, ASKED);
  const edges = shownEdges(gathered(fitting, focus ? FOCUSED_FAN : FAN), "", "", MOST_EDGES).edges;
  // The bus may know more of them than it was asked for.
  const isAll = flows.pairs <= flows.exchanges.length + flows.sources.length;
  for (const edge of edges) {
    if (!edge.gathered) continue;
    const [id, around] = edge.to.startsWith("rest ") ? [edge.to, edge.from] : [edge.from, edge.to];
    nodes.set(id, { id, name: `${isAll ? "" : "over "}${count(edge.gathered)} more`, kind: "rest", under: edge.weight ? "with less traffic" : "that listen", around });
  }
  const kept = new Set(edges.flatMap((edge) => [edge.from, edge.to]));
  for (const id of nodes.keys()) if (!kept.has(id)) nodes.delete(id);
  if (!edges.length && all.length) return empty("Nothing here has such a name", "Names of services and topics are compared, whatever their case.");
  if (!edges.length) return empty("Nothing to draw yet", "Services appear here when they send requests or publish.");
  const places = layout([...nodes.values()], edges);
  const columns = Math.max(...[...places.values()].map((place) => place.column)) + 1;
  const rows = Math.max(...[...places.values()].map((place) => place.row)) + 1;
  const across = Math.min(BOX.most, Math.max(BOX.least, (room - BOX.width - 2 * BOX.margin) / Math.max(1, columns - 1)));
  const width = (columns - 1) * across + BOX.width + 2 * BOX.margin;
  const height = (rows - 1) * BOX.down + BOX.height + 2 * BOX.margin;
  /** @param {string} id @returns {Corner} */
  const corner = (id) => {
    const place = /** @type {{column: number, row: number}} */ (places.get(id));
    return { x: BOX.margin + place.column * across, y: BOX.margin + place.row * BOX.down };
  };
  const heaviest = Math.max(...edges.map((edge) => edge.weight));
  const curves = edges.map((edge) => curve(corner(edge.from), corner(edge.to)));
  const lines = edges.map((edge, at) => arrow(edge, curves[at], heaviest));
  const labels = placed(edges, curves, across - BOX.width);
  // In an order that traffic does not change: a box stays the same element while its figures change.
  const boxes = [...nodes.values()].sort((one, other) => (one.id < other.id ? -1 : 1)).map((each) => box(each, corner(each.id), address(each.around ?? each.id), each.id === focus));
  const drawing = s("svg", { class: "graph", width, height, viewBox: `0 0 ${width} ${height}`, role: "group", "aria-label": `${nodes.size} services and topics, ${edges.length} connections; the tables below list them` }, lines, labels, boxes);
  const undrawn = left + fitting.length - edges.reduce((sum, edge) => sum + (edge.gathered ?? 1), 0);
  return undrawn > 0 ? h("div", {}, h("p", { class: "soft" }, `The busiest connections; ${count(undrawn)} more are in the tables, and around their boxes.`), drawing) : drawing;
}

/**
 * From box to box; what points back leaves at the left, a little lower, so that both ways can be seen.
 * @typedef {{x1: number, y1: number, x2: number, y2: number, side: number, beside: boolean}} Curve  `side`: -1 if it points back; `beside`: within one column
 * @param {Corner} from
 * @param {Corner} to
 * @returns {Curve}
 */
function curve(from, to) {
  const back = to.x < from.x;
  const beside = to.x === from.x;
  const lower = back || beside ? 10 : -4;
  return { x1: back ? from.x : from.x + BOX.width, y1: from.y + BOX.height / 2 + lower, x2: back || beside ? to.x + BOX.width : to.x, y2: to.y + BOX.height / 2 + lower, side: back ? -1 : 1, beside };
}

/** @param {Edge} edge @param {Curve} curve @param {number} heaviest */
function arrow(edge, { x1, y1, x2, y2, side, beside }, heaviest) {
  const bend = beside ? BULGE : Math.abs(x2 - x1) / 2;
  const d = `M${x1} ${y1}C${x1 + side * bend} ${y1} ${beside ? x2 + bend : x2 - side * bend} ${y2} ${x2} ${y2}`;
  const thick = 1.2 + 2.8 * (Math.log(1 + edge.weight) / Math.log(1 + heaviest));
  return s("g", { class: `edge ${wireClass(edge.wire)}` }, s("path", { d, "stroke-width": thick.toFixed(1) }),
    s("path", { d: `M${x2} ${y2}l${beside ? 8 : -8 * side} -4v8z`, class: "tip" }));
}

/**
 * The names and figures of lines, the busiest first, each nearer to its own line than to others. One that finds no room
 * is left out; the table has it.
 * @param {Edge[]} edges
 * @param {Curve[]} curves
 * @param {number} gap  between columns
 */
function placed(edges, curves, gap) {
  /** @type {Area[]} */
  const taken = [];
  return edges.map((edge, at) => {
    const spot = edge.weight ? spots(edge, curves[at], gap).find((area) => taken.every((other) => !overlap(area, other)) && curves.every((each) => !crosses(each, area) && away(each, area) >= away(curves[at], area))) : undefined;
    if (spot) taken.push(spot);
    return spot ? label(edge, spot) : null;
  });
}

/**
 * Where the label of a line may stand: near it, in the first gap or the last one. Between them there may be boxes.
 * @param {Edge} edge
 * @param {Curve} curve
 * @param {number} gap
 * @returns {Area[]}
 */
function spots(edge, { x1, y1, x2, y2, side, beside }, gap) {
  const words = [clipped(edge.label, LABEL), figures(edge)];
  const width = LETTER * Math.max(...words.map((each) => each.length)) + 4;
  const height = edge.label ? 26 : 14;
  if (beside) return [{ x: x1 + 0.75 * BULGE + 4 + width / 2, y: (y1 + y2 - height) / 2, width, height }];
  const inner = gap - width - 8;
  const places = inner > 0 ? ALONG.map((part) => width / 2 + 4 + part * inner) : [gap / 2];
  return places.flatMap((place) => [x1 + side * place, x2 - side * place]).flatMap((x) => {
    const heights = [x - width / 2, x, x + width / 2].map((each) => heightAt([x1, y1], [x2, y2], each));
    const [above, below] = [Math.min(...heights) - height - 3, Math.max(...heights) + 3];
    return (side < 0 ? [below, above] : [above, below]).map((y) => ({ x, y, width, height }));
  });
}

/** @param {Area} one @param {Area} other */
function overlap(one, other) {
  return Math.abs(one.x - other.x) < (one.width + other.width) / 2 && one.y < other.y + other.height && other.y < one.y + one.height;
}

/** @param {Curve} curve @param {Area} area */
function crosses({ x1, y1, x2, y2, beside }, { x, y, width, height }) {
  const [left, right] = [x - width / 2, x + width / 2];
  if (beside) return left < x1 + 0.75 * BULGE + 2 && right > x1 && Math.min(y1, y2) < y + height && y < Math.max(y1, y2);
  const [begin, end] = [Math.max(left, Math.min(x1, x2)), Math.min(right, Math.max(x1, x2))];
  if (begin > end) return false;
  // It rises or falls all the way.
  const heights = [heightAt([x1, y1], [x2, y2], begin), heightAt([x1, y1], [x2, y2], end)];
  return Math.min(...heights) - 2 < y + height && y < Math.max(...heights) + 2;
}

/** How far a line is from the middle of an area, above or below it. @param {Curve} curve @param {Area} area */
function away({ x1, y1, x2, y2, beside }, { x, y, height }) {
  if (beside || x < Math.min(x1, x2) || x > Math.max(x1, x2)) return Infinity;
  return Math.abs(heightAt([x1, y1], [x2, y2], x) - y - height / 2);
}

/** @param {Edge} edge */
function figures(edge) {
  return `${count(edge.weight)}${edge.errors ? ` ${failedShare(edge.errors, edge.weight)} failed` : ""}`;
}

/** @param {Edge} edge @param {Area} area */
function label(edge, { x, y }) {
  const lines = [edge.label ? s("tspan", { x, dy: 0 }, clipped(edge.label, LABEL)) : null, s("tspan", { x, dy: edge.label ? 12 : 0, class: "counted" }, count(edge.weight)),
    edge.errors ? s("tspan", { class: "counted failing" }, ` ${failedShare(edge.errors, edge.weight)} failed`) : null];
  return s("text", { x, y: y + 10, class: "caption", "text-anchor": "middle" }, lines, s("title", {}, `${edge.label} ${count(edge.weight)}${edge.errors ? `, ${count(edge.errors)} failed` : ""}`.trim()));
}

/** @param {Box} node @param {Corner} at @param {string} href @param {boolean} isFocus */
function box(node, at, href, isFocus) {
  return s("a", { class: `node ${node.kind}${isFocus ? " focus" : ""}`, href }, s("title", {}, node.name), s("rect", { x: at.x, y: at.y, width: BOX.width, height: BOX.height, rx: node.kind === "topic" ? 22 : 8 }),
    s("text", { x: at.x + BOX.width / 2, y: at.y + 19, "text-anchor": "middle" }, clipped(node.name, LETTERS)),
    s("text", { class: "under", x: at.x + BOX.width / 2, y: at.y + 35, "text-anchor": "middle" }, node.under));
}

/** @param {string} text @param {number} length */
function clipped(text, length) {
  const letters = [...text];
  return letters.length > length ? `${letters.slice(0, length - 1).join("")}…` : text;
}
