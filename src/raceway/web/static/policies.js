// @ts-check
// Changing subscriptions and queues: what becomes of messages that fail, the ways out of a block, new ones, moving and
// deleting them. What loses something asks first.

import { get, send } from "./api.js";
import { h, replace } from "./dom.js";
import { count, counted } from "./format.js";
import { asking, link } from "./route.js";

/** @type {Record<string, string>} */
const THEN = { block: "stays and blocks", drop: "is dropped", dead_letter: "goes to dead letters" };
// More at once are no notices any more; the table has them first.
const MOST_NOTICES = 5;
const PLACES = "first, last, an offset or a time";

/** @typedef {HTMLInputElement | HTMLSelectElement} Field */

/** @param {string} name @param {string} value @param {Record<string, any>} [more] */
export function input(name, value, more = {}) {
  const field = /** @type {HTMLInputElement} */ (h("input", { name, autocomplete: "off", spellcheck: "false", ...more }));
  field.value = value;
  return field;
}

/** @param {string} name @param {string} value @param {Record<string, string>} titles */
export function select(name, value, titles) {
  const field = /** @type {HTMLSelectElement} */ (h("select", { name }, Object.entries(titles).map(([each, title]) => h("option", { value: each }, title))));
  field.value = value;
  return field;
}

/**
 * Is it meant? Nothing is done without a yes.
 * @param {string} sentence
 * @param {string} yes
 * @returns {Promise<boolean>}
 */
export function confirmed(sentence, yes) {
  const dialog = /** @type {HTMLDialogElement} */ (h("dialog", { "aria-label": yes }));
  return new Promise((resolve) => {
    const end = (/** @type {boolean} */ answer) => {
      resolve(answer);
      dialog.close();
    };
    dialog.addEventListener("close", () => {
      resolve(false);
      dialog.remove();
    });
    replace(dialog, h("p", {}, sentence), h("div", { class: "actions dialog-end" },
      h("button", { type: "button", onclick: () => end(true) }, yes), h("button", { type: "button", class: "quiet", onclick: () => end(false) }, "Cancel")));
    document.body.append(dialog);
    dialog.showModal();
  });
}

/**
 * Do it, and say how it went.
 * @param {HTMLElement} said
 * @param {() => Promise<string>} act  gives the sentence that is said, if any
 */
export async function told(said, act) {
  try {
    const sentence = await act();
    replace(said, sentence ? h("div", { class: "notice good" }, sentence) : null);
  } catch (error) {
    replace(said, h("div", { class: "notice bad" }, /** @type {Error} */ (error).message));
  }
}

/** Out of what may be at once, where the bus holds messages for the subscription. @param {any} row */
export function inFlight(row) {
  if (!row.in_flight_limit) return count(row.in_flight);
  // Handed out before the bus lowered the limit for a slow consumer.
  if (row.in_flight <= row.in_flight_limit) return `${count(row.in_flight)} of ${count(row.in_flight_limit)}`;
  return h("span", {}, count(row.in_flight), h("small", { class: "under" }, `limit now ${count(row.in_flight_limit)}`));
}

/** Notices of blocked subscriptions, and the form of one policy. */
export class Policies {
  /** @param {() => Promise<void>} reload  what the page shows @param {boolean} [ofBus]  of all topics */
  constructor(reload, ofBus = false) {
    this.reload = reload;
    this.ofBus = ofBus;
    this.said = h("div", { role: "status" });
    this.stuck = h("div", {});
    this.form = h("div", { class: "card", hidden: true });
    this.shown = "";
  }

  /** @param {any[]} rows  subscriptions of a topic, or of the bus */
  update(rows) {
    const blocked = rows.filter((row) => row.blocked_at !== null);
    const lettered = rows.filter((row) => row.dead_letters > 0);
    const facts = JSON.stringify([...blocked, ...lettered].map((row) => [row.topic, row.name, row.blocked_at, row.blocked_by, row.dead_letters]));
    if (facts === this.shown) return; // a button that somebody is about to press stays where it is
    this.shown = facts;
    replace(this.stuck, blocked.slice(0, MOST_NOTICES).map((row) => this.#notice(row)), lettered.length ? letters(lettered) : null);
  }

  /** A message that failed too often stops a subscription: which, and the two ways out. @param {any} row */
  #notice(row) {
    return h("div", { class: "notice bad", role: "alert" },
      h("p", {}, `Subscription ${row.name}${this.ofBus ? ` of ${row.topic}` : ""} is blocked by the message at offset ${row.blocked_at}, which failed too often`, row.blocked_by ? ` (${row.blocked_by})` : "", "."),
      h("p", {}, "Skip it, or change the failure policy of the subscription, so that the message is dropped or copied to a dead-letter topic. From a shell: ",
        h("code", {}, `raceway replay ${row.topic} ${row.name} --from ${row.blocked_at + 1}`), ", ", h("code", {}, `raceway subscription policy ${row.topic} ${row.name} --then drop`)),
      h("div", { class: "actions" }, h("button", { type: "button", onclick: () => this.#goPast(row) }, "Skip it"),
        h("button", { type: "button", class: "quiet", onclick: () => this.open(row) }, "Change its policy")));
  }

  /** @param {any} row */
  async #goPast(row) {
    const meant = await confirmed(`Subscription ${row.name} continues at offset ${row.blocked_at + 1}. The message at ${row.blocked_at} will not be delivered again; later messages that were already acknowledged are delivered again.`, "Skip the message");
    if (!meant) return;
    await told(this.said, async () => {
      await send("POST", "/api/replay", { topic: row.topic, subscription: row.name, from: String(row.blocked_at + 1) });
      await this.reload();
      return `Subscription ${row.name} continues at offset ${row.blocked_at + 1}.`;
    });
  }

  /** The form of a subscription's policy. @param {any} row */
  async open(row) {
    await told(this.said, async () => {
      const found = await get("/api/subscriptions/policy", { topic: row.topic, name: row.name });
      replace(this.form, this.#made(row, found));
      this.form.hidden = false;
      /** @type {HTMLElement} */ (this.form.querySelector("input")).focus();
      this.form.scrollIntoView({ block: "nearest" });
      return "";
    });
  }

  /** @param {any} row @param {any} found */
  #made(row, found) {
    const seconds = { type: "number", min: 0, step: "any", required: true };
    const fields = {
      max_redelivery_count: input("max_redelivery_count", found.max_redelivery_count, { type: "number", min: 0, required: true }),
      ack_timeout_ms: input("ack_timeout_ms", String(found.ack_timeout_ms / 1000), seconds),
      base_redelivery_delay_ms: input("base_redelivery_delay_ms", String(found.base_redelivery_delay_ms / 1000), seconds),
      max_redelivery_delay_ms: input("max_redelivery_delay_ms", String(found.max_redelivery_delay_ms / 1000), seconds),
      backoff: select("backoff", found.backoff, { exponential: "double each time", fixed: "stay the same" }),
      poison: select("poison", found.poison, THEN),
      dead_letter_topic: input("dead_letter_topic", found.dead_letter_topic ?? "", { placeholder: `${row.topic}.failed` }),
    };
    const window = input("in_flight", found.in_flight ?? "", { type: "number", min: 1, placeholder: "adaptive" });
    const close = () => {
      this.form.hidden = true;
    };
    const submit = async (/** @type {Event} */ event) => {
      event.preventDefault();
      await this.#set(row, found, policyOf(fields), window.value === "" ? null : Number(window.value));
    };
    const isSet = found.is_own || found.in_flight !== null;
    return [h("h2", {}, `Policy of subscription ${row.name}`),
      h("p", { class: "soft" }, found.is_own ? "This subscription has its own policy." : "The policy of the bus (broker.subscriptions.failure) applies; changes here are for this subscription only.", " Changes apply immediately."),
      h("form", { class: "filters", "aria-label": "Failure policy", onsubmit: submit },
        h("label", {}, "Maximum redeliveries", fields.max_redelivery_count), h("label", {}, "Ack timeout, s", fields.ack_timeout_ms),
        h("label", {}, "Delay before redelivery, s", fields.base_redelivery_delay_ms), h("label", {}, "Longest delay, s", fields.max_redelivery_delay_ms),
        h("label", {}, "Pauses", fields.backoff), h("label", {}, "Then the message", fields.poison), h("label", {}, "Dead-letter topic", fields.dead_letter_topic),
        h("label", {}, "In flight per consumer", window),
        h("div", { class: "actions row" }, h("button", {}, "Set policy"), isSet ? h("button", { type: "button", class: "quiet", onclick: () => this.#takeBack(row) }, "Remove policy") : null,
          h("button", { type: "button", class: "quiet", onclick: close }, "Close")))];
  }

  /** What was not changed and is the bus's stays the bus's. @param {any} row @param {any} found @param {Record<string, any>} policy @param {number | null} inFlight */
  async #set(row, found, policy, inFlight) {
    const changed = found.is_own || Object.entries(policy).some(([name, value]) => value !== found[name]);
    if (!changed && inFlight === null) return this.#takeBack(row);
    const meant = await confirmed(`For subscription ${row.name} of ${row.topic}: after ${policy.max_redelivery_count} redeliveries a message ${THEN[policy.poison]}${policy.poison === "dead_letter" ? ` (${policy.dead_letter_topic ?? "no topic"})` : ""}. This applies immediately, also to messages that block now.`, "Set this policy");
    if (!meant) return;
    await this.#change(row, "PUT", { ...(changed ? policy : {}), in_flight: inFlight }, `The policy of subscription ${row.name} is set.`);
  }

  /** @param {any} row */
  async #takeBack(row) {
    const meant = await confirmed(`Subscription ${row.name} of ${row.topic} will use the settings of the bus again.`, "Remove this policy");
    if (meant) await this.#change(row, "DELETE", undefined, `Subscription ${row.name} uses the settings of the bus.`);
  }

  /** @param {any} row @param {string} method @param {any} body @param {string} done */
  async #change(row, method, body, done) {
    await told(this.said, async () => {
      await send(method, `/api/subscriptions/policy${asking({ topic: row.topic, name: row.name })}`, body);
      this.form.hidden = true;
      await this.reload();
      return done;
    });
  }
}

/** @param {Record<string, Field>} fields */
function policyOf(fields) {
  const milliseconds = (/** @type {Field} */ field) => Math.round(Number(field.value) * 1000);
  return {
    max_redelivery_count: Number(fields.max_redelivery_count.value), ack_timeout_ms: milliseconds(fields.ack_timeout_ms),
    base_redelivery_delay_ms: milliseconds(fields.base_redelivery_delay_ms), max_redelivery_delay_ms: milliseconds(fields.max_redelivery_delay_ms),
    backoff: fields.backoff.value, poison: fields.poison.value, dead_letter_topic: fields.dead_letter_topic.value.trim() || null,
  };
}

/**
 * Making a subscription or a queue that begins at a place.
 * @param {string} topic  empty: it is asked for, and made if there is none
 * @param {() => Promise<void>} reload
 */
export function newCard(topic, reload) {
  const said = h("div", { role: "status" });
  const of = input("topic", topic, { required: true });
  const kind = select("what", "subscription", { subscription: "subscription", queue: "queue" });
  const name = input("name", "", { required: true });
  const type = select("type", "shared", { shared: "shared", exclusive: "exclusive", failover: "failover", key_shared: "key_shared" });
  const start = input("start", "last", { required: true, placeholder: PLACES, title: PLACES });
  const only = [h("label", {}, "Name", name), h("label", {}, "Type", type)];
  kind.addEventListener("change", () => {
    for (const label of only) label.hidden = kind.value === "queue";
    name.required = kind.value !== "queue";
  });
  const submit = async (/** @type {Event} */ event) => {
    event.preventDefault();
    await told(said, async () => {
      const isQueue = kind.value === "queue";
      const made = isQueue ? await send("POST", "/api/queues", { name: of.value, start: start.value })
        : await send("POST", "/api/subscriptions", { topic: of.value, name: name.value, type: type.value, start: start.value, create_topic: true });
      await reload();
      const what = isQueue ? `Queue ${made.name}` : `Subscription ${made.name} of ${made.topic}`;
      return made.made ? `${what} was created, from ${start.value}.` : `${what} exists already and was not changed.`;
    });
  };
  return h("details", { class: "card" }, h("summary", {}, "New subscription or queue"),
    h("p", { class: "soft" }, "Keeps messages for its consumers from its start position: ", h("code", {}, "first"), ", ", h("code", {}, "last"), ", an offset, or a time such as ", h("code", {}, "2026-01-31T12:00:00Z"), "."),
    h("form", { class: "filters", "aria-label": "New subscription or queue", onsubmit: submit },
      topic ? null : h("label", {}, "Topic", of), h("label", {}, "What", kind), only, h("label", {}, "Start", start), h("div", { class: "actions" }, h("button", {}, "Make"))), said);
}

/** Messages that were given up: how many, and the way to them. @param {any[]} rows */
function letters(rows) {
  const all = rows.reduce((sum, row) => sum + row.dead_letters, 0);
  return h("div", { class: "notice warn", role: "status" }, `${counted(all, "message")} became ${all === 1 ? "a dead letter" : "dead letters"} since the start: `,
    rows.slice(0, MOST_NOTICES).map((row) => `${row.name} of ${row.topic} ${count(row.dead_letters)}`).join(", "), ". Mend what failed, then ",
    h("a", { href: link("rejected", "", { source: "dead_letter", topic: rows.length === 1 ? rows[0].topic : "" }) }, "look at them and send them again"), ".");
}

/**
 * Asks where a subscription or a queue is to go on, and moves it there.
 * @param {any} row  of the list of lags
 * @param {HTMLElement} said
 * @param {() => Promise<void>} reload
 */
export function moveDialog(row, said, reload) {
  const dialog = /** @type {HTMLDialogElement} */ (h("dialog", { "aria-label": "Replay" }));
  const start = input("from", "first", { required: true, placeholder: "first, end, an offset or a time" });
  const what = row.kind === "queue" ? `queue ${row.name}` : `subscription ${row.name} of ${row.topic}`;
  const submit = async (/** @type {Event} */ event) => {
    event.preventDefault();
    dialog.close();
    await told(said, async () => {
      const done = await send("POST", "/api/replay", { topic: row.topic, subscription: row.kind === "queue" ? null : row.name, from: start.value.trim() });
      await reload();
      const gaps = done.gaps?.length ? ` ${counted(done.gaps.length, "gap")} behind it: those rows are lost.` : "";
      return `The ${what} continues at offset ${done.from}.${gaps}`;
    });
  };
  replace(dialog, h("h2", {}, `Replay ${what}`), h("form", { class: "token", "aria-label": "Replay", onsubmit: submit }, h("label", {}, "Continue at", start),
    h("p", { class: "soft" }, h("code", {}, "first"), ", ", h("code", {}, "end"), ", an offset, or a time such as ", h("code", {}, "2026-01-31T12:00:00Z"), "."),
    h("p", {}, "Going back delivers messages again that were acknowledged; going forward leaves out those between: they are not delivered any more."),
    h("div", { class: "actions dialog-end" }, h("button", {}, "Move it"), h("button", { type: "button", class: "quiet", onclick: () => dialog.close() }, "Cancel"))));
  dialog.addEventListener("close", () => dialog.remove());
  document.body.append(dialog);
  dialog.showModal();
}

/**
 * @param {any} row  of the list of lags
 * @param {HTMLElement} said
 * @param {() => Promise<void>} reload
 */
export async function remove(row, said, reload) {
  const isQueue = row.kind === "queue";
  const what = isQueue ? `Queue ${row.name}` : `Subscription ${row.name} of ${row.topic}`;
  const meant = await confirmed(`${what} is deleted with its position: ${counted(row.lag, "message")} that ${row.lag === 1 ? "waits" : "wait"} there will not be delivered. Messages stay in the topic. Consumers must have left.`, isQueue ? "Delete the queue" : "Delete the subscription");
  if (!meant) return;
  await told(said, async () => {
    await send("DELETE", isQueue ? `/api/queues${asking({ name: row.name })}` : `/api/subscriptions${asking({ topic: row.topic, name: row.name })}`);
    await reload();
    return `${what} was deleted.`;
  });
}

/**
 * @param {any} row  a queue
 * @param {HTMLElement} said
 * @param {() => Promise<void>} reload
 */
export async function purge(row, said, reload) {
  const meant = await confirmed(`${counted(row.lag, "message")} that ${row.lag === 1 ? "waits" : "wait"} in queue ${row.name} will not be delivered. They stay in the topic.`, "Purge the queue");
  if (!meant) return;
  await told(said, async () => {
    const done = await send("DELETE", `/api/queues/${encodeURIComponent(row.name)}/messages`);
    await reload();
    return `Queue ${row.name} was purged of ${counted(done.purged, "message")}.`;
  });
}
