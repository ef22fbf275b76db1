// @ts-check
// Signing in: on a bus with security the console asks for a token, and says who it is for and what it may not do.

import { ApiError, get, token } from "./api.js";
import { h, replace } from "./dom.js";

/** @typedef {{security: "off" | "admin_token" | "tokens", principal: string, is_known: boolean, permissions: string[]}} Session */

/**
 * The button that says who is signed in.
 * @param {HTMLElement} button
 */
export async function tellWho(button) {
  /** @type {Session | null} */
  let session = null;
  try {
    session = await get("/api/session");
  } catch {
    // A token that is not good any more, or no bus: the page says which.
  }
  button.hidden = session?.security === "off";
  button.textContent = session?.is_known ? session.principal.replace(/^\w+:/, "") : "Sign in";
  button.title = session?.is_known ? `Signed in as ${session.principal}` : "";
  button.dataset.known = session?.is_known ? "yes" : "";
}

/**
 * Instead of a page that may not be seen.
 * @param {ApiError} error
 */
export function denied(error) {
  if (!token.get()) return card("Sign-in required", "Sign in to see this page.", signIn());
  if (error.status === 401) return card("The token is not valid", error.message, signIn());
  return card("Permission required", `${error.message}. Ask an administrator of this bus for the role, or sign in as another user.`, signIn());
}

/** @param {string} title @param {string} sentence @param {HTMLElement} form */
function card(title, sentence, form) {
  return h("div", { class: "card sign-in fault" }, h("h2", {}, title), h("p", { role: "alert" }, sentence), form);
}

/** @param {() => void} [after] */
function signIn(after = () => {}) {
  const field = /** @type {HTMLInputElement} */ (h("input", { type: "password", autocomplete: "off", name: "token", required: true, spellcheck: "false" }));
  const said = h("div", { role: "status" });
  const submit = async (/** @type {Event} */ event) => {
    event.preventDefault();
    const reason = await refusal(field.value.trim());
    if (reason) replace(said, h("div", { class: "notice bad" }, reason));
    else after();
  };
  return h("form", { class: "token", onsubmit: submit }, h("label", {}, "Token", field), said,
    h("p", { class: "soft" }, "The administrator's token, or a token (JWT) with the permission Lookup. It is kept until this window is closed and is never part of a URL."),
    h("div", { class: "actions" }, h("button", {}, "Sign in")));
}

/**
 * Why it is not taken; empty if it is. What is taken replaces the one before.
 * @param {string} value
 */
async function refusal(value) {
  /** @type {any} */
  let body;
  try {
    const response = await fetch("/api/session", { headers: { authorization: `Bearer ${value}` } });
    body = await response.json();
    if (!response.ok) return body.error.message;
  } catch {
    return "The bus does not answer. Try again when it is back.";
  }
  if (!body.is_known) return "This is not the administrator's token.";
  token.set(value);
  return "";
}

/** A dialog for whoever wants to be somebody else. */
export function askWho() {
  const dialog = /** @type {HTMLDialogElement} */ (h("dialog", { "aria-label": "Sign in" }));
  const close = () => dialog.close();
  const out = () => {
    close();
    token.set("");
  };
  replace(dialog, h("h2", {}, token.get() ? "Sign in as another user" : "Sign in"), signIn(close),
    h("div", { class: "actions dialog-end" }, token.get() ? h("button", { type: "button", class: "quiet", onclick: out }, "Sign out") : null,
      h("button", { type: "button", class: "quiet", onclick: close }, "Cancel")));
  dialog.addEventListener("close", () => dialog.remove());
  document.body.append(dialog);
  dialog.showModal();
}
