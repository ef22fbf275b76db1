// @ts-check
// Asking the bus. Every error has the shape {"error": {"code", "message"}}.

import { EventParser } from "./events.js";
import { asking } from "./route.js";

const TOKEN = "raceway-token";
const RETRY_MS = 1000;
// A bus that says nothing for so long, beside its own rhythm, does not answer: it is stopped, or the network is cut.
const SILENCE_MS = 10_000;

export class ApiError extends Error {
  /** @param {number} status @param {string} code @param {string} message @param {any} [details]  of a schema's refusal */
  constructor(status, code, message, details) {
    super(message);
    this.details = details;
    this.status = status;
    this.code = code;
  }
}

/** There was no answer at all: the bus is away, or the network is. */
export class AwayError extends Error {
  constructor() {
    super("The bus does not answer.");
  }
}

/** Is it about who asks, and not about what was asked? @param {unknown} error */
export function isDenied(error) {
  return error instanceof ApiError && (error.status === 401 || error.status === 403);
}

/** Kept for this window only, and sent in a header only: addresses end up in histories and logs. */
export const token = {
  /** Says `change` when there is another one. */
  changes: new EventTarget(),
  get: () => sessionStorage.getItem(TOKEN) ?? "",
  /** @param {string} value */
  set: (value) => {
    if (value) sessionStorage.setItem(TOKEN, value);
    else sessionStorage.removeItem(TOKEN);
    token.changes.dispatchEvent(new Event("change"));
  },
};

/**
 * @param {string} address
 * @param {RequestInit} [options]
 * @returns {Promise<Response>}
 */
async function reach(address, options) {
  try {
    return await fetch(address, options);
  } catch (error) {
    throw options?.signal?.aborted ? error : new AwayError();
  }
}

/** @returns {Record<string, string>} */
function headers() {
  return token.get() ? { authorization: `Bearer ${token.get()}` } : {};
}

/**
 * @param {string} path
 * @param {Record<string, any>} [query]
 * @param {AbortSignal} [signal]
 * @returns {Promise<any>}
 */
export async function get(path, query = {}, signal) {
  return answer(await reach(path + asking(query), { headers: headers(), signal }));
}

/**
 * @param {string} method
 * @param {string} path
 * @param {any} [body]
 * @returns {Promise<any>}
 */
export async function send(method, path, body) {
  const sent = body === undefined ? {} : { body: JSON.stringify(body), headers: { ...headers(), "content-type": "application/json" } };
  return answer(await reach(path, { method, headers: headers(), ...sent }));
}

/**
 * A message, whatever its body.
 * @param {string} path
 * @param {Record<string, string>} more  headers
 * @param {BodyInit} body
 */
export async function deliver(path, more, body) {
  const response = await reach(path, { method: "POST", headers: { ...more, ...headers() }, body });
  return response.ok ? response : /** @type {never} */ (await answer(response));
}

/** @param {string} path @returns {Promise<Blob>} */
export async function download(path) {
  const response = await reach(path, { headers: headers() });
  return response.ok ? response.blob() : answer(response);
}

/** @param {Response} response */
async function answer(response) {
  let body;
  try {
    body = await response.json();
  } catch (error) {
    if (error instanceof TypeError) throw new AwayError(); // it ended in the middle
    if (error instanceof DOMException) throw error; // nobody waits for it any more
    throw new ApiError(response.status, "unreadable", `the bus answered ${response.status} without JSON`);
  }
  if (response.ok) return body;
  throw new ApiError(response.status, body.error?.code ?? "unknown", body.error?.message ?? `the bus answered ${response.status}`, body.error?.details);
}

/**
 * Events until the signal is given; connects again when the stream ends, is silent for long, or somebody else signs in.
 * @param {string} path
 * @param {(event: string, data: any, id: string) => void} take
 * @param {(connected: boolean, error?: ApiError) => void} tell
 * @param {{rhythm?: () => number, signal?: AbortSignal, from?: () => Record<string, string>}} [more]  `rhythm`: milliseconds between events,
 *   `from`: headers that say where to go on
 */
export async function watch(path, take, tell, { rhythm = () => 1000, signal, from = () => ({}) } = {}) {
  while (!signal?.aborted) {
    const changed = new AbortController();
    const again = new Promise((resolve) => changed.signal.addEventListener("abort", resolve));
    const change = () => changed.abort();
    token.changes.addEventListener("change", change);
    signal?.addEventListener("abort", change);
    let heard = Date.now();
    let isSilent = false;
    // A stream that ends may only have been ended, as when a permission was taken away: the next attempt tells.
    let hasSpoken = false;
    const silence = setInterval(() => {
      isSilent = Date.now() - heard > SILENCE_MS + 3 * rhythm();
      if (isSilent) change();
    }, RETRY_MS);
    try {
      const response = await fetch(path, { headers: { ...headers(), accept: "text/event-stream", ...from() }, signal: changed.signal });
      if (!response.ok || !response.body) await answer(response);
      tell(true);
      const parser = new EventParser();
      const decoder = new TextDecoder();
      const reader = /** @type {ReadableStream<Uint8Array>} */ (response.body).getReader();
      for (let piece = await reader.read(); !piece.done; piece = await reader.read()) {
        heard = Date.now();
        hasSpoken = true;
        for (const { event, data, id } of parser.feed(decoder.decode(piece.value, { stream: true }))) take(event, JSON.parse(data), id);
      }
      if (!hasSpoken) tell(false);
    } catch (error) {
      const isLost = isSilent || (!hasSpoken && !changed.signal.aborted);
      if (isLost) tell(false, error instanceof ApiError ? error : undefined);
    }
    clearInterval(silence);
    if (!hasSpoken || isSilent) await Promise.race([signal?.aborted || again, new Promise((resolve) => setTimeout(resolve, RETRY_MS))]);
    token.changes.removeEventListener("change", change);
    signal?.removeEventListener("abort", change);
  }
}
