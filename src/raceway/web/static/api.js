// @ts-check
// Asking the bus. Every error has the shape {"error": {"code", "message"}}.

import { EventParser } from "./events.js";
import { asking } from "./route.js";

const TOKEN = "raceway-token";
const RETRY_MS = 1000;

export class ApiError extends Error {
  /** @param {number} status @param {string} code @param {string} message */
  constructor(status, code, message) {
    super(message);
    this.status = status;
    this.code = code;
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
  return answer(await fetch(path + asking(query), { headers: headers(), signal }));
}

/**
 * @param {string} method
 * @param {string} path
 * @param {any} [body]
 * @returns {Promise<any>}
 */
export async function send(method, path, body) {
  const sent = body === undefined ? {} : { body: JSON.stringify(body), headers: { ...headers(), "content-type": "application/json" } };
  return answer(await fetch(path, { method, headers: headers(), ...sent }));
}

/** @param {string} path @returns {Promise<Blob>} */
export async function download(path) {
  const response = await fetch(path, { headers: headers() });
  return response.ok ? response.blob() : answer(response);
}

/** @param {Response} response */
async function answer(response) {
  let body;
  try {
    body = await response.json();
  } catch {
    throw new ApiError(response.status, "unreadable", `the bus answered ${response.status} without JSON`);
  }
  if (response.ok) return body;
  throw new ApiError(response.status, body.error?.code ?? "unknown", body.error?.message ?? `the bus answered ${response.status}`);
}

/**
 * Events for as long as the window is open; connects again when the stream ends or somebody else signs in.
 * @param {string} path
 * @param {(event: string, data: any) => void} take
 * @param {(connected: boolean, error?: ApiError) => void} tell
 */
export async function watch(path, take, tell) {
  for (;;) {
    const changed = new AbortController();
    const again = new Promise((resolve) => changed.signal.addEventListener("abort", resolve));
    const change = () => changed.abort();
    token.changes.addEventListener("change", change);
    try {
      const response = await fetch(path, { headers: headers(), signal: changed.signal });
      if (!response.ok || !response.body) await answer(response);
      tell(true);
      const parser = new EventParser();
      const decoder = new TextDecoder();
      const reader = /** @type {ReadableStream<Uint8Array>} */ (response.body).getReader();
      for (let piece = await reader.read(); !piece.done; piece = await reader.read()) {
        for (const { event, data } of parser.feed(decoder.decode(piece.value, { stream: true }))) take(event, JSON.parse(data));
      }
      tell(false);
    } catch (error) {
      tell(false, error instanceof ApiError ? error : undefined);
    }
    await Promise.race([again, new Promise((resolve) => setTimeout(resolve, RETRY_MS))]);
    token.changes.removeEventListener("change", change);
  }
}
