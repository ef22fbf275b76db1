// @ts-check
// The time that all pages show, in the address: `range=6h`, or from one moment to another, as ISO 8601 writes it:
// `range=2026-11-17T03:00:00Z/2026-11-17T04:00:00Z`. Without one pages show now: the newest rows, the last minutes. Pure.

/** @typedef {{text: string, title: string, sinceUs: number, untilUs: number | null}} Range  `untilUs` null: until now */

/** @type {[string, string][]} */
export const RANGES = [["", "Now"], ["15m", "Last 15 min"], ["1h", "Last hour"], ["6h", "Last 6 hours"], ["24h", "Last 24 hours"]];

const UNITS = /** @type {Record<string, number>} */ ({ m: 60e6, h: 3600e6, d: 86_400e6 });

/**
 * What such a text means; null if it says nothing, or nothing that can be read.
 * @param {string | undefined} text
 * @param {number} nowUs
 * @returns {Range | null}
 */
export function range(text, nowUs) {
  if (!text) return null;
  const last = /^(\d{1,4})([mhd])$/.exec(text);
  if (last) {
    const [, number, unit] = last;
    const title = RANGES.find(([known]) => known === text)?.[1] ?? `Last ${number} ${unit === "m" ? "minutes" : unit === "h" ? "hours" : "days"}`;
    return { text, title, sinceUs: nowUs - Number(number) * UNITS[unit], untilUs: null };
  }
  const [since, until] = text.split("/").map((part) => Date.parse(part) * 1000);
  return since < until ? { text, title: `${shown(since)} to ${shown(until)}`, sinceUs: since, untilUs: until } : null;
}

/** The text of a range between two moments, to the second. @param {number} sinceUs @param {number} untilUs */
export function between(sinceUs, untilUs) {
  return [sinceUs, untilUs].map((us) => `${new Date(Math.floor(us / 1e6) * 1000).toISOString().slice(0, 19)}Z`).join("/");
}

/** What a narrow field says of a range between two moments: hours of a day, or days. @param {Range} found @param {number} nowUs */
export function brief({ title, sinceUs, untilUs }, nowUs) {
  if (untilUs === null) return title;
  const [since, until] = [local(sinceUs), local(untilUs)];
  const day = since.slice(5, 10);
  if (since.slice(0, 10) !== until.slice(0, 10)) return `${day} to ${until.slice(5, 10)}`;
  return `${since.slice(0, 10) === local(nowUs).slice(0, 10) ? "" : `${day} `}${since.slice(11, 16)} to ${until.slice(11, 16)}`;
}

/** What a range asks the bus for; nothing if there is none. @param {Range | null} found */
export function times(found) {
  return found ? { since_us: Math.round(found.sinceUs), until_us: found.untilUs === null ? "" : Math.round(found.untilUs) } : {};
}

/** A moment as fields of forms have it: local, to the second. @param {number} us */
export function local(us) {
  const at = new Date(us / 1000);
  return new Date(at.getTime() - at.getTimezoneOffset() * 60_000).toISOString().slice(0, 19);
}

/** @param {number} us */
function shown(us) {
  return local(us).replace("T", " ");
}
