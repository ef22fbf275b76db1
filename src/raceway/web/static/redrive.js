// @ts-check
// Sending rejected messages again: one, one that was edited, or many; from a list or from a message's own page.

import { get, send } from "./api.js";
import { h, replace, topicLink } from "./dom.js";
import { count, counted, payload } from "./format.js";

// What the bus adds itself.
const MARK = "raceway.redriven";
const SHOWN_FAILURES = 5;
// What a dead letter says of itself.
const LETTER = ["x-original-topic", "x-original-subscription", "x-original-topic-offset", "x-original-producer-id", "x-original-broker-addr", "x-poison-policy", "x-delivery-attempt", "x-failure-reason"];

export class Redrive {
  /** @param {() => Promise<void>} reload  what the page shows */
  constructor(reload) {
    this.reload = reload;
    this.said = h("div", { role: "status" });
  }

  /** @param {number} position */
  button(position) {
    const button = /** @type {HTMLButtonElement} */ (h("button", { type: "button", class: "quiet", "aria-label": `Send again: message ${position}`, onclick: async () => {
      button.disabled = true;
      await this.#send(position, {});
      button.disabled = false;
    } }, "Send again"));
    return button;
  }

  /** @param {number} position */
  editor(position) {
    return h("button", { type: "button", class: "quiet", "aria-label": `Edit message ${position}`, onclick: () => this.#edit(position) }, "Edit");
  }

  /**
   * One after another, and how it went.
   * @param {number[]} positions
   * @param {HTMLButtonElement} stop
   * @param {AbortSignal} signal
   */
  async all(positions, stop, signal) {
    let isStopped = false;
    stop.onclick = () => { isStopped = true; };
    let sent = 0;
    /** @type {string[]} */
    const failures = [];
    for (const position of positions) {
      if (isStopped || signal.aborted) break;
      try {
        await send("POST", `/api/rejected/${position}/redrive`, {});
        sent += 1;
      } catch (error) {
        failures.push(`${count(position)}: ${/** @type {Error} */ (error).message}`);
      }
      replace(this.said, h("div", { class: "notice" }, `${count(sent + failures.length)} of ${counted(positions.length, "message")}`));
    }
    const rest = positions.length - sent - failures.length;
    replace(this.said, h("div", { class: failures.length ? "notice bad" : "notice good" }, `${counted(sent, "message")} sent again`, failures.length ? `, ${count(failures.length)} refused again` : "", rest ? `, ${count(rest)} left` : "", ".",
      failures.length ? h("ul", {}, failures.slice(0, SHOWN_FAILURES).map((each) => h("li", {}, each))) : null));
  }

  /** @param {number} position @param {any} edited */
  async #send(position, edited) {
    try {
      const done = await send("POST", `/api/rejected/${position}/redrive`, edited);
      replace(this.said, h("div", { class: "notice good" }, `Message ${count(position)} was sent again to `, topicLink(done.topic), "."));
      await this.reload();
      return true;
    } catch (error) {
      replace(this.said, h("div", { class: "notice bad" }, `Message ${count(position)} was refused again: ${/** @type {Error} */ (error).message}`));
      return false;
    }
  }

  /** @param {number} position */
  async #edit(position) {
    /** @type {any} */
    let found;
    try {
      found = await get(`/api/rejected/${position}`);
    } catch (error) {
      replace(this.said, h("div", { class: "notice bad" }, /** @type {Error} */ (error).message));
      return;
    }
    const { message } = found;
    const isBinary = message.payload_base64 !== undefined;
    const own = ownAttributes(message);
    const topic = /** @type {HTMLInputElement} */ (h("input", { name: "topic", required: true, autocomplete: "off" }));
    topic.value = found.topic ?? "";
    const text = /** @type {HTMLTextAreaElement} */ (h("textarea", { name: "payload", spellcheck: "false" }));
    text.value = isBinary ? message.payload_base64 : payload({ payload: message.payload ?? "", payload_bytes: 1 }).text;
    const lines = /** @type {HTMLTextAreaElement} */ (h("textarea", { name: "attributes", class: "low", spellcheck: "false" }));
    lines.value = own === null ? "" : Object.entries(own).map(([name, value]) => `${name}: ${value}`).join("\n");
    const before = { topic: topic.value, text: text.value, lines: lines.value };
    const refused = h("div", { role: "status" });
    const dialog = /** @type {HTMLDialogElement} */ (h("dialog", { class: "large", "aria-label": "Edit and send again" }));
    const submit = async (/** @type {Event} */ event) => {
      event.preventDefault();
      /** @type {Record<string, any>} */
      const edited = topic.value === before.topic ? {} : { topic: topic.value };
      // What was not touched is sent as it was, byte by byte.
      if (text.value !== before.text) edited[isBinary ? "payload_base64" : "payload"] = text.value;
      if (lines.value !== before.lines) edited.attributes = attributesOf(lines.value);
      if (await this.#send(position, edited)) dialog.close();
      else replace(refused, ...[...this.said.childNodes].map((each) => each.cloneNode(true)));
    };
    replace(dialog, h("h2", {}, `Edit message ${count(position)}`), h("p", { class: "soft" }, found.reason || found.code || ""),
      h("form", { class: "publish", "aria-label": "Edit and send again", onsubmit: submit }, h("label", {}, "Topic", topic), own === null ? h("p", { class: "soft" }, "The message itself is in its topic, this is a note about it: it can be sent elsewhere, not edited.")
        : [h("label", {}, isBinary ? "Payload, as base64" : "Payload", text), h("label", {}, "Attributes, one in a line", lines)], refused,
        h("div", { class: "actions dialog-end" }, h("button", {}, "Send again"), h("button", { type: "button", class: "quiet", onclick: () => dialog.close() }, "Cancel"))));
    dialog.addEventListener("close", () => dialog.remove());
    document.body.append(dialog);
    dialog.showModal();
  }
}

/** Was the message at this place put there because it was refused or given up? @param {any} message */
export function isKept(message) {
  return ["raceway.rejected", "raceway.undeliverable"].includes(message.topic) || "x-original-topic" in (message.attributes ?? {});
}

/** Those of the message itself, not of the note about it; null where they cannot be told apart. @param {any} message @returns {Record<string, string> | null} */
function ownAttributes(message) {
  const { attributes = {} } = message;
  if ("x-original-topic" in attributes) return Object.fromEntries(Object.entries(attributes).filter(([name]) => !LETTER.includes(name) && name !== MARK));
  if ("offset" in attributes) return null; // the message is in its topic, this is a note about it
  try {
    return Object.fromEntries(Object.entries(JSON.parse(attributes.attributes ?? "{}")).map(([name, value]) => [name, String(value)]));
  } catch {
    return null;
  }
}

/** @param {string} lines  of `name: value` */
function attributesOf(lines) {
  return Object.fromEntries(lines.split("\n").filter((line) => line.includes(":")).map((line) => [line.slice(0, line.indexOf(":")).trim(), line.slice(line.indexOf(":") + 1).trim()]));
}
