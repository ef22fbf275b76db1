// @ts-check
// Addresses within the console: #/page/argument?name=value. The range of time is in all of them (range.js).

/** @typedef {{page: string, argument: string, query: Record<string, string>}} Place */

/** What every address has, wherever it leads. */
export const shared = { range: "" };

/** @param {string} hash @returns {Place} */
export function parse(hash) {
  const [path, query = ""] = split(hash.replace(/^#?\/?/, ""), "?");
  const [page, argument = ""] = split(path, "/");
  return { page: decode(page), argument: decode(argument), query: Object.fromEntries(new URLSearchParams(query)) };
}

/**
 * @param {string} page
 * @param {string | number} [argument]
 * @param {Record<string, string | number | boolean | null | undefined>} [query]  empty ones are left out
 */
export function link(page, argument = "", query = {}) {
  const target = argument === "" ? "" : `/${encodeURIComponent(String(argument))}`;
  return `#/${page}${target}${asking({ ...query, range: query.range ?? shared.range })}`;
}

/**
 * The part of an address that begins with a question mark.
 * @param {Record<string, any>} query  empty ones are left out
 */
export function asking(query) {
  const given = Object.entries(query).filter(([, value]) => value !== "" && value !== null && value !== undefined && value !== false);
  return given.length ? `?${new URLSearchParams(given.map(([name, value]) => [name, String(value)]))}` : "";
}

/** @param {string} text @param {string} at @returns {[string, string?]} */
function split(text, at) {
  const found = text.indexOf(at);
  return found < 0 ? [text] : [text.slice(0, found), text.slice(found + 1)];
}

/** @param {string} text */
function decode(text) {
  try {
    return decodeURIComponent(text);
  } catch {
    return text;
  }
}
