// @ts-check
// What a form for messages says, as requests of the HTTP door. Pure.

export const MOST = 1000;
// Headers with a meaning of their own; all others begin with x-.
const KNOWN = ["schema-id", "schema-version", "traceparent", "tracestate"];

/**
 * Lines of `name: value` as headers.
 * @param {string} lines
 * @returns {Record<string, string>}
 */
export function headersOf(lines) {
  /** @type {Record<string, string>} */
  const found = {};
  for (const line of lines.split("\n").filter((each) => each.trim())) {
    const at = line.indexOf(":");
    const name = line.slice(0, Math.max(0, at)).trim().toLowerCase();
    if (at < 0 || !/^[!#$%&'*+.^_`|~0-9a-z-]+$/.test(name)) throw new Error(`“${line.trim()}” is no header: write name: value`);
    if (!name.startsWith("x-") && !KNOWN.includes(name)) throw new Error(`Header “${name}” must begin with x-: others are about the connection`);
    found[name] = sendable(line.slice(at + 1).trim());
  }
  return found;
}

/** Headers are bytes to a browser: those of UTF-8, as the bus reads them. @param {string} text */
export function sendable(text) {
  return String.fromCharCode(...new TextEncoder().encode(text));
}

/**
 * The payloads that are sent: one, one for each line, or some with `{{n}}` counted.
 * @param {string} text
 * @param {number} count
 * @param {boolean} byLine
 */
export function payloadsOf(text, count, byLine) {
  const texts = byLine ? text.split("\n").filter((each) => each.trim()) : [text];
  if (texts.length * count > MOST) throw new Error(`At most ${MOST} messages are sent at once`);
  return Array.from({ length: count }, (_, round) => texts.map((each, at) => each.replaceAll("{{n}}", String(round * texts.length + at + 1)))).flat();
}
