// @ts-check
// What changed between two texts, line by line. Pure.

/** @typedef {{mark: " " | "+" | "-", text: string}} Line */

// Beyond this the table of common lines would be large; then everything counts as changed.
const MOST_CELLS = 4_000_000;

/**
 * The shortest way from one to the other that keeps common lines.
 * @param {string} old
 * @param {string} next
 * @returns {Line[]}
 */
export function difference(old, next) {
  const a = old.split("\n");
  const b = next.split("\n");
  let head = 0;
  while (head < a.length && head < b.length && a[head] === b[head]) head += 1;
  let tail = 0;
  while (tail < a.length - head && tail < b.length - head && a[a.length - 1 - tail] === b[b.length - 1 - tail]) tail += 1;
  return [
    ...marked(" ", a.slice(0, head)),
    ...middle(a.slice(head, a.length - tail), b.slice(head, b.length - tail)),
    ...marked(" ", a.slice(a.length - tail)),
  ];
}

/** @param {Line["mark"]} mark @param {string[]} lines @returns {Line[]} */
function marked(mark, lines) {
  return lines.map((text) => ({ mark, text }));
}

/** @param {string[]} a @param {string[]} b @returns {Line[]} */
function middle(a, b) {
  if (!a.length || !b.length || a.length * b.length > MOST_CELLS) return [...marked("-", a), ...marked("+", b)];
  const width = b.length + 1;
  const common = new Uint32Array((a.length + 1) * width); // of a[i…] and b[j…]
  for (let i = a.length - 1; i >= 0; i -= 1) {
    for (let j = b.length - 1; j >= 0; j -= 1) {
      const here = i * width + j;
      common[here] = a[i] === b[j] ? common[here + width + 1] + 1 : Math.max(common[here + width], common[here + 1]);
    }
  }
  /** @type {Line[]} */
  const found = [];
  let i = 0;
  let j = 0;
  while (i < a.length || j < b.length) {
    if (i < a.length && j < b.length && a[i] === b[j]) {
      found.push({ mark: " ", text: a[i] });
      i += 1;
      j += 1;
    } else if (i < a.length && (j === b.length || common[(i + 1) * width + j] >= common[i * width + j + 1])) {
      found.push({ mark: "-", text: a[i] });
      i += 1;
    } else {
      found.push({ mark: "+", text: b[j] });
      j += 1;
    }
  }
  return found;
}

/**
 * A definition with one member in a line, so that versions can be compared whatever their blanks.
 * @param {string} text
 */
export function comparable(text) {
  try {
    return JSON.stringify(JSON.parse(text), null, 2);
  } catch {
    return text;
  }
}
