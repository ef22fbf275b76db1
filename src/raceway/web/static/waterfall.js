// @ts-check
// The times of a trace, made ready to draw. Pure.

/**
 * @typedef {object} Span  one message, and its answer where there is one
 * @property {number} position
 * @property {number | null} parent
 * @property {number} depth
 * @property {string} wire
 * @property {string | null} answer_wire
 * @property {string} kind
 * @property {string} topic
 * @property {string | null} producer
 * @property {string | null} responder
 * @property {number} begin_us
 * @property {number | null} end_us
 * @property {string | null} error
 * @property {number | null} answer
 */

/**
 * Where a span begins and how long it is, as parts of the whole. A publish is a point; so is a request without answer.
 * @param {Span} span
 * @param {number} beginUs
 * @param {number} endUs
 */
export function place(span, beginUs, endUs) {
  const whole = Math.max(1, endUs - beginUs);
  const left = clamp((span.begin_us - beginUs) / whole);
  const right = clamp(((span.end_us ?? span.begin_us) - beginUs) / whole);
  return { left, width: Math.max(0, right - left) };
}

/** @param {number} part */
function clamp(part) {
  return Math.min(1, Math.max(0, part));
}

/** The times at the quarters of a trace. @param {number} wholeUs */
export function instants(wholeUs) {
  return [0, 1, 2, 3, 4].map((part) => (wholeUs * part) / 4);
}

/** @param {Span[]} spans */
export function wires(spans) {
  return [...new Set(spans.flatMap((span) => (span.answer_wire ? [span.wire, span.answer_wire] : [span.wire])))];
}

/** @param {Span} span */
export function described(span) {
  const asked = span.kind === "request";
  const who = [span.producer, asked ? span.responder : null].filter(Boolean).join(" → ");
  const over = span.answer_wire && span.answer_wire !== span.wire ? `${span.wire} → ${span.answer_wire}` : span.wire;
  return [asked ? "request" : span.kind, over, who].filter(Boolean).join(" · ");
}
