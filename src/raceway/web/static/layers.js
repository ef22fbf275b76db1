// @ts-check
// Where to draw the nodes of a graph: in columns from left to right, so that most arrows point right. Pure.

/**
 * @typedef {{id: string}} Node
 * @typedef {{from: string, to: string}} Edge
 * @typedef {Map<string, {column: number, row: number}>} Layout
 */

/**
 * A node stands right of those that lead to it; arrows that close a circle do not count.
 * @param {Node[]} nodes
 * @param {Edge[]} edges
 * @returns {Layout}
 */
export function layout(nodes, edges) {
  const forward = withoutCircles(nodes, edges);
  /** @type {Map<string, number>} */
  const column = new Map(nodes.map((node) => [node.id, 0]));
  // As many rounds as there are columns at most; without circles this ends by itself.
  for (let changed = true; changed;) {
    changed = false;
    for (const { from, to } of forward) {
      const wanted = /** @type {number} */ (column.get(from)) + 1;
      if (wanted > /** @type {number} */ (column.get(to))) {
        column.set(to, wanted);
        changed = true;
      }
    }
  }
  return inRows(nodes, forward, column);
}

/** @param {Node[]} nodes @param {Edge[]} edges */
function withoutCircles(nodes, edges) {
  /** @type {Map<string, Edge[]>} */
  const leaving = new Map(nodes.map((node) => [node.id, []]));
  for (const edge of edges) if (leaving.has(edge.from) && leaving.has(edge.to) && edge.from !== edge.to) leaving.get(edge.from)?.push(edge);
  /** @type {Map<string, "open" | "done">} */
  const state = new Map();
  /** @type {Edge[]} */
  const kept = [];
  /** @param {string} id */
  const visit = (id) => {
    state.set(id, "open");
    for (const edge of leaving.get(id) ?? []) {
      if (state.get(edge.to) === "open") continue; // closes a circle
      kept.push(edge);
      if (!state.has(edge.to)) visit(edge.to);
    }
    state.set(id, "done");
  };
  // Those to whom nobody leads come first: circles are then cut where they would point back to the start.
  const reached = new Set(edges.filter((edge) => edge.from !== edge.to).map((edge) => edge.to));
  for (const node of nodes) if (!reached.has(node.id) && !state.has(node.id)) visit(node.id);
  for (const node of nodes) if (!state.has(node.id)) visit(node.id);
  return kept;
}

/** @param {Node[]} nodes @param {Edge[]} edges @param {Map<string, number>} column @returns {Layout} */
function inRows(nodes, edges, column) {
  /** @type {string[][]} */
  const columns = [];
  for (const node of nodes) (columns[column.get(node.id) ?? 0] ??= []).push(node.id);
  /** @type {Layout} */
  const placed = new Map();
  columns.forEach((ids, at) => {
    /** @param {string} id  the middle of those to the left */
    const middle = (id) => {
      const rows = edges.filter((edge) => edge.to === id).flatMap((edge) => placed.get(edge.from)?.row ?? []);
      return rows.length ? rows.reduce((sum, row) => sum + row, 0) / rows.length : Infinity;
    };
    const wished = new Map(ids.map((id) => [id, middle(id)]));
    const sorted = at ? [...ids].sort((x, y) => /** @type {number} */ (wished.get(x)) - /** @type {number} */ (wished.get(y)) || 0) : ids;
    sorted.forEach((id, row) => placed.set(id, { column: at, row }));
  });
  return placed;
}

/**
 * Which connections are drawn: those around the focus, whose ends have the text, the busiest of them. Those who only
 * listen follow the topics that are there.
 * @template {{from: string, to: string, label: string, weight: number}} E
 * @param {E[]} all
 * @param {string} focus
 * @param {string} text
 * @param {number} most
 * @returns {{edges: E[], left: number}}
 */
export function shownEdges(all, focus, text, most) {
  const wanted = text.toLowerCase();
  const fits = all.filter((edge) => (!focus || edge.from === focus || edge.to === focus) && (!wanted || [edge.from, edge.to, edge.label].some((each) => each.toLowerCase().includes(wanted))));
  const busiest = fits.filter((edge) => edge.weight > 0).sort((a, b) => b.weight - a.weight).slice(0, most);
  const ends = new Set([focus, ...busiest.flatMap((edge) => [edge.from, edge.to])]);
  const listening = fits.filter((edge) => edge.weight === 0 && (ends.has(edge.from) || ends.has(edge.to))).slice(0, most);
  const edges = [...busiest, ...listening];
  return { edges, left: fits.length - edges.length };
}

/**
 * The same connections with fans gathered: of those that leave or reach one box, the lightest are one connection to a
 * box that stands for all of them.
 * @template {{from: string, to: string, label: string, weight: number, errors: number, gathered?: number}} E
 * @param {E[]} edges
 * @param {number} most  that a box keeps on each side
 * @returns {E[]}
 */
export function gathered(edges, most) {
  let kept = edges;
  for (const [near, far] of /** @type {["from" | "to", "from" | "to"][]} */ ([["from", "to"], ["to", "from"]])) {
    /** @type {Map<string, E[]>} */
    const fans = new Map();
    for (const edge of kept) {
      const key = `${edge.weight ? "" : "listening "}${edge[near]}`;
      fans.set(key, [...(fans.get(key) ?? []), edge]);
    }
    kept = [...fans].flatMap(([key, fan]) => {
      if (fan.length <= most + 1) return fan;
      const sorted = [...fan].sort((a, b) => b.weight - a.weight);
      const rest = sorted.slice(most);
      const sum = (/** @type {(edge: E) => number} */ value) => rest.reduce((total, edge) => total + value(edge), 0);
      return [...sorted.slice(0, most), { ...rest[0], [far]: `rest ${far} ${key}`, label: "", weight: sum((edge) => edge.weight), errors: sum((edge) => edge.errors), gathered: sum((edge) => edge.gathered ?? 1) }];
    });
  }
  return kept;
}

/** How many of all failed, as people say it. @param {number} errors @param {number} all */
export function failedShare(errors, all) {
  const percent = (100 * errors) / Math.max(1, all);
  return percent < 1 ? "under 1 %" : `${Math.round(percent)} %`;
}
