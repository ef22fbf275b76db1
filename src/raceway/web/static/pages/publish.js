// @ts-check
// Publishing, and asking a service, from the console: through the HTTP door, which every wire hears.

import { deliver, get } from "../api.js";
import { draft } from "../draft.js";
import { copyButton, h, heading, replace, topicLink } from "../dom.js";
import { count, counted, duration, payload } from "../format.js";
import { headersOf, payloadsOf, sendable } from "../outgoing.js";
import { link } from "../route.js";

/** @type {Record<string, string>} */
const MEANINGS = {
  publish: "Every subscriber on every wire gets it; queues and subscriptions by name keep it for their consumers.",
  request: "One service answers it, on whatever wire it is: an MB responder, a zbus consumer, a Seneca service (the pattern role:a,cmd:b is the topic a.b).",
};

/** @param {import("../app.js").View} view */
export async function show(view) {
  const meaning = /** @type {HTMLSelectElement} */ (h("select", { name: "meaning" }, h("option", { value: "publish" }, "publish"), h("option", { value: "request" }, "request, wait for the answer")));
  const topic = input("topic", view.query.topic ?? "", { required: true, list: "topics", placeholder: "baggage.events" });
  const known = h("datalist", { id: "topics" });
  const key = input("key", "", { placeholder: "none" });
  const type = input("type", "application/json", { list: "types" });
  const types = h("datalist", { id: "types" }, ["application/json", "text/plain", "application/octet-stream"].map((value) => h("option", { value })));
  const timeout = input("timeout", "", { type: "number", min: 1, placeholder: "that of the bus" });
  const headers = /** @type {HTMLTextAreaElement} */ (h("textarea", { name: "headers", class: "low", spellcheck: "false", placeholder: "x-order: 17" }));
  const text = /** @type {HTMLTextAreaElement} */ (h("textarea", { name: "payload", spellcheck: "false", placeholder: '{"bag": 17}' }));
  const file = /** @type {HTMLInputElement} */ (h("input", { type: "file", name: "file" }));
  const times = input("count", "1", { type: "number", min: 1, max: 1000, required: true });
  const byLine = /** @type {HTMLInputElement} */ (h("input", { type: "checkbox", name: "lines" }));
  const about = h("p", { class: "soft" });
  const contract = h("div", {});
  const said = h("div", { role: "status" });
  const go = /** @type {HTMLButtonElement} */ (h("button", {}, "Send"));
  const stop = /** @type {HTMLButtonElement} */ (h("button", { type: "button", class: "quiet", hidden: true }, "Stop"));
  const several = [h("label", {}, "How many", times), h("label", { class: "row" }, byLine, "Each line is a message")];
  const waiting = h("label", { hidden: true }, "Timeout, ms", timeout);

  const explainMeaning = () => {
    about.textContent = MEANINGS[meaning.value];
    for (const each of several) each.hidden = meaning.value === "request";
    waiting.hidden = meaning.value === "publish";
  };
  const common = () => ({ ...headersOf(headers.value), ...(key.value ? { "routing-key": sendable(key.value) } : {}), ...(type.value ? { "content-type": sendable(type.value) } : {}),
    ...(meaning.value === "request" && timeout.value ? { "timeout-ms": timeout.value } : {}) });
  const publish = async () => {
    const bodies = file.files?.length ? [file.files[0]] : payloadsOf(text.value, Number(times.value), byLine.checked);
    let isStopped = false;
    stop.onclick = () => { isStopped = true; };
    stop.hidden = bodies.length === 1;
    let stored = 0;
    /** @type {any} */
    let last = null;
    try {
      for (const body of bodies) {
        if (isStopped || view.signal.aborted) break;
        last = await (await deliver(`/topics/${encodeURIComponent(topic.value)}`, common(), body)).json();
        stored += 1;
        if (bodies.length > 1) replace(said, h("div", { class: "notice" }, `${count(stored)} of ${counted(bodies.length, "message")}`));
      }
    } catch (error) {
      throw stored ? new Error(`${counted(stored, "message")} stored, then: ${/** @type {Error} */ (error).message}`) : error;
    } finally {
      stop.hidden = true;
    }
    if (!last) return;
    const where = last.repeated ? "was sent before (x-dedup-id) and is not stored again" : stored > 1 ? `${counted(stored, "message")} stored, the last at offset ${count(last.offset)} of ` : `Stored at offset ${count(last.offset)} of `;
    replace(said, h("div", { class: "notice good" }, where, topicLink(last.topic), last.routed === false ? ". Nobody listens to this topic now. " : ". ",
      last.message_id ? h("a", { href: link("messages", "", { id: last.message_id }) }, "Show it") : null));
  };
  const ask = async () => {
    const began = performance.now();
    const response = await deliver(`/requests/${encodeURIComponent(topic.value)}`, common(), file.files?.length ? file.files[0] : text.value);
    const took = (performance.now() - began) * 1000;
    const body = await response.text();
    const shown = payload({ payload: body, payload_bytes: body.length });
    const trace = response.headers.get("x-correlation-id");
    replace(said, h("div", { class: "notice good" }, `Answered in ${duration(took)}. `, trace ? h("a", { href: link("traces", trace) }, "Show its trace") : null),
      h("div", { class: "card" }, h("div", { class: "card-head" }, h("h2", {}, `Answer: ${shown.kind}`), copyButton(body, "answer")), h("pre", { class: "payload", tabindex: 0, role: "region", "aria-label": "Answer" }, shown.text || "empty")));
  };
  const submit = async (/** @type {Event} */ event) => {
    event.preventDefault();
    go.disabled = true;
    replace(said, h("div", { class: "notice" }, "Sending…"));
    try {
      await (meaning.value === "publish" ? publish() : ask());
    } catch (error) {
      replace(said, h("div", { class: "notice bad" }, /** @type {Error} */ (error).message, ...reasons(error)));
    }
    go.disabled = false;
  };
  const help = async () => {
    replace(contract);
    if (!topic.value.trim()) return;
    const wanted = topic.value.trim();
    const found = await get("/api/topic-schemas", {}, view.signal);
    const bound = found.topics.find((/** @type {any} */ each) => each.topic === wanted && each.subject);
    if (!bound || topic.value.trim() !== wanted) return;
    const latest = await get(`/api/schemas/${encodeURIComponent(bound.subject)}/versions/latest`, {}, view.signal);
    const example = draft(latest.schema_type, latest.definition ?? "");
    replace(contract, h("details", { class: "card" }, h("summary", {}, `Schema ${bound.subject}, version ${latest.version}, policy ${bound.policy}`),
      h("pre", { class: "payload", tabindex: 0, role: "region", "aria-label": "Schema" }, payload({ payload: latest.definition ?? "", payload_bytes: 1 }).text)),
    example ? h("div", { class: "actions" }, h("button", { type: "button", class: "quiet", onclick: () => { text.value = example; text.focus(); } }, "Draft from the schema"), h("a", { href: link("schemas", bound.subject) }, "Open the schema")) : null);
  };
  meaning.addEventListener("change", explainMeaning);
  topic.addEventListener("change", () => view.attempt(help));
  replace(view.root, heading("Publish", "Send messages to a topic, or a request to a service, on behalf of whoever is signed in."), h("div", { class: "card" },
    h("form", { class: "publish", "aria-label": "Publish", onsubmit: submit }, h("div", { class: "filters" }, h("label", {}, "Meaning", meaning), h("label", {}, "Topic", topic), h("label", {}, "Key", key), h("label", {}, "Content type", type), several, waiting), about,
      h("label", {}, "Headers, one in a line", headers), h("label", {}, "Payload", text), contract,
      h("p", { class: "soft" }, "With more than one, ", h("code", {}, "{{n}}"), " in the payload is its number."),
      h("div", { class: "actions" }, h("label", { class: "row" }, "or a file", file), go, stop)), known, types), said);
  explainMeaning();
  await view.attempt(async () => {
    const found = await get("/api/topics", { limit: 200, order: "rate" }, view.signal);
    replace(known, found.topics.map((/** @type {any} */ row) => h("option", { value: row.topic })));
    await help();
  });
}

/** @param {string} name @param {string} value @param {Record<string, any>} [more] */
function input(name, value, more = {}) {
  const field = /** @type {HTMLInputElement} */ (h("input", { name, autocomplete: "off", spellcheck: "false", ...more }));
  field.value = value;
  return field;
}

/** What a schema says against it. @param {any} error */
function reasons(error) {
  const { details } = error;
  return details ? [h("ul", {}, [["where", details.path], ["rule", details.rule], ["subject", details.subject], ["version", details.version]].filter(([, value]) => value).map(([name, value]) => h("li", {}, `${name}: ${value}`)))] : [];
}
