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
