// @ts-check
// Numbers, sizes and times as people read them. Pure.

const grouped = new Intl.NumberFormat("en", { maximumFractionDigits: 0 });

/** @param {number} value */
export function count(value) {
  return grouped.format(value);
}

/** A number of a table: without the dust that binary fractions leave. @param {number} value */
export function plain(value) {
  return String(Number.isInteger(value) ? value : Number(value.toPrecision(12)));
}

/** A moment of a table, as people write it; other texts as they are. @param {string} text */
export function instant(text) {
  return text.replace(/^(\d{4}-\d\d-\d\d)T(\d\d:\d\d:\d\d(?:\.\d+)?)\+00:00$/, "$1 $2 UTC");
}

/** A value of a table: moments as people write them, also those that are microseconds or milliseconds since 1970. @param {string} name  of the column @param {unknown} value */
export function cell(name, value) {
  if (typeof value !== "number") return instant(String(value));
  const ms = /_us$/.test(name) ? value / 1000 : /_ms$/.test(name) ? value : 0;
  // From 2001 on: what is shorter is a duration.
  return ms > 1e12 && ms < 1e13 ? instant(new Date(ms).toISOString().replace("Z", "+00:00")) : plain(value);
}

/** So many of something. @param {number} value @param {string} what  one of them */
export function counted(value, what) {
  return `${count(value)} ${what}${value === 1 ? "" : "s"}`;
}

/** So many of all. @param {number} shown @param {number} all @param {string} what  one of them */
export function outOf(shown, all, what) {
  return shown < all ? `${count(shown)} of ${counted(all, what)}` : counted(all, what);
}

/** @param {number} value  a second */
export function rate(value) {
  if (value === 0) return "0/s";
  return value < 10 ? `${Number(value.toFixed(1))}/s` : `${short(value)}/s`;
}

/** @param {number} value */
export function short(value) {
  for (const [size, letter] of /** @type {[number, string][]} */ ([[1e9, "G"], [1e6, "M"], [1e4, "k"]])) {
    if (value >= size) {
      const unit = letter === "k" ? 1e3 : size;
      return `${Number((value / unit).toFixed(1))} ${letter}`;
    }
  }
  return grouped.format(value);
}

/** @param {number} value */
export function bytes(value) {
  const units = ["bytes", "KiB", "MiB", "GiB", "TiB"];
  let unit = 0;
  while (value >= 1024 && unit < units.length - 1) {
    value /= 1024;
    unit += 1;
  }
  return `${unit ? Number(value.toFixed(1)) : grouped.format(value)} ${units[unit]}`;
}

/** @param {number} us  microseconds */
export function duration(us) {
  if (us < 1000) return `${Math.round(us)} µs`;
  if (us < 1e6) return `${Number((us / 1e3).toFixed(us < 1e4 ? 2 : 1))} ms`;
  if (us < 60e6) return `${Number((us / 1e6).toFixed(2))} s`;
  const minutes = Math.floor(us / 60e6);
  if (minutes < 60) return `${minutes} min ${Math.floor((us / 1e6) % 60)} s`;
  const hours = Math.floor(minutes / 60);
  return hours < 48 ? `${hours} h ${minutes % 60} min` : `${Math.floor(hours / 24)} d ${hours % 24} h`;
}

/** @param {number} us  since 1970 */
export function time(us) {
  if (!us) return "";
  const at = new Date(us / 1000);
  /** @param {number} value @param {number} [width] */
  const pad = (value, width = 2) => String(value).padStart(width, "0");
  const day = `${at.getFullYear()}-${pad(at.getMonth() + 1)}-${pad(at.getDate())}`;
  return `${day} ${pad(at.getHours())}:${pad(at.getMinutes())}:${pad(at.getSeconds())}.${pad(at.getMilliseconds(), 3)}`;
}

/** The time zone in which times are shown. @param {number} us  since 1970: summer and winter differ */
export function zone(us) {
  const minutes = -new Date(us / 1000).getTimezoneOffset();
  if (!minutes) return "UTC";
  const clock = [Math.floor(Math.abs(minutes) / 60), Math.abs(minutes) % 60].map((part) => String(part).padStart(2, "0"));
  return `UTC${minutes < 0 ? "−" : "+"}${clock[0]}${clock[1] === "00" ? "" : `:${clock[1]}`}`;
}

/**
 * The time of day; with the day where that is not today's.
 * @param {number} us  since 1970
 * @param {number} nowUs
 */
export function clock(us, nowUs) {
  const whole = time(us);
  return whole.slice(0, 10) === time(nowUs).slice(0, 10) ? whole.slice(11) : whole;
}

/** @param {number} us  since 1970 @param {number} nowUs */
export function ago(us, nowUs) {
  if (!us) return "never";
  const seconds = Math.floor(Math.max(0, nowUs - us) / 1e6);
  return seconds < 1 ? "just now" : `${duration(seconds * 1e6)} ago`;
}

/**
 * A payload to look at: what it is, and its text.
 * @param {{payload?: string | null, payload_base64?: string | null, payload_bytes: number}} message
 * @returns {{kind: "empty" | "JSON" | "text" | "binary", text: string}}
 */
export function payload(message) {
  if (!message.payload_bytes) return { kind: "empty", text: "" };
  if (message.payload_base64) return { kind: "binary", text: hexLines(fromBase64(message.payload_base64)) };
  const text = message.payload ?? "";
  try {
    const value = JSON.parse(text);
    // Numbers that JavaScript would round are left as they were sent.
    return { kind: "JSON", text: exact(text) ? JSON.stringify(value, null, 2) : text };
  } catch {
    return { kind: "text", text };
  }
}

/** @param {string} text  JSON; can it be printed anew without changing a number? */
function exact(text) {
  const numbers = text.replace(/"(?:[^"\\]|\\.)*"/g, "").match(/-?\d[\d.eE+-]*/g) ?? [];
  return numbers.every((number) => String(Number(number)) === number);
}

/** @param {string} text */
function fromBase64(text) {
  return Uint8Array.from(atob(text), (letter) => letter.charCodeAt(0));
}

/** @param {Uint8Array} data */
function hexLines(data) {
  const lines = [];
  for (let at = 0; at < data.length; at += 16) {
    const piece = [...data.slice(at, at + 16)];
    const hex = piece.map((byte) => byte.toString(16).padStart(2, "0")).join(" ");
    const text = piece.map((byte) => (byte >= 32 && byte < 127 ? String.fromCharCode(byte) : ".")).join("");
    lines.push(`${at.toString(16).padStart(8, "0")}  ${hex.padEnd(47)}  ${text}`);
  }
  return lines.join("\n");
}
