// @ts-check
import { get, send } from "../api.js";
import { badge, empty, h, heading, replace, topicLink } from "../dom.js";
import { comparable, difference } from "../diff.js";
import { count, time } from "../format.js";
import { confirmed, input, select, told } from "../policies.js";
import { link } from "../route.js";
import { Table } from "../table.js";

const TYPES = ["json_schema", "avro", "protobuf"];

/** @param {import("../app.js").View} view */
export async function show(view) {
  await (view.argument ? showOne(view) : showAll(view));
}

/** @param {import("../app.js").View} view */
async function showAll(view) {
  const subjects = new Table([
    { title: "Subject", cell: (row) => h("span", {}, h("a", { href: link("schemas", row.subject) }, row.subject), row.deleted ? [" ", badge("deleted", "warn")] : null), fixed: true, class: "wide" },
    { title: "Type", cell: (row) => row.schema_type },
    { title: "Latest version", number: true, cell: (row) => count(row.latest_version) },
    { title: "Compatibility", cell: (row) => row.mode },
    { title: "Tags", cell: (row) => row.tags.join(", "), optional: true },
  ], (row) => row.subject, empty("No schema yet", "Register one: ", h("code", {}, "raceway schema register orders order.json --type json_schema")), "Subjects");
  const topics = new Table([
    { title: "Topic", cell: (row) => topicLink(row.topic), fixed: true, class: "wide" },
    { title: "Subject", cell: (row) => row.subject ?? "any" },
    { title: "Policy", cell: (row) => badge(row.policy, row.policy === "enforce" ? "good" : row.policy === "warn" ? "warn" : "") },
    { title: "Payloads checked", cell: (row) => (row.validate_payload ? "yes" : "no") },
    { title: "Actions", unseen: true, fixed: true, class: "tight", cell: (row) => h("button", { type: "button", class: "quiet", "aria-label": `Unbind ${row.topic}`, onclick: () => unbind(row) }, "Unbind") },
  ], (row) => row.topic, empty("No topic is bound to a schema", "Bind one: ", h("code", {}, "raceway schema bind orders.created orders --policy enforce")), "Bound topics");
  const said = h("div", { role: "status" });
  /** @param {any} row */
  const unbind = async (row) => {
    if (!(await confirmed(`Messages of topic ${row.topic} are not checked against ${row.subject ?? "a schema"} any more.`, "Unbind the topic"))) return;
    await told(said, async () => {
      await send("DELETE", `/api/topic-schemas/${encodeURIComponent(row.topic)}`);
      await load();
      return `Topic ${row.topic} is not bound any more.`;
    });
  };
  const deleted = /** @type {HTMLInputElement} */ (h("input", { type: "checkbox", name: "deleted", checked: view.query.deleted === "true" }));
  replace(view.root, heading("Schemas", "Schemas of payloads, and the topics that are bound to them."), said,
    h("div", { class: "card" }, h("h2", {}, "Subjects"), h("form", { class: "filters" }, h("label", { class: "row" }, deleted, "Show deleted")), subjects.element), h("div", { class: "card" }, h("h2", {}, "Topics"), topics.element), registerCard("", [], () => load()), bindCard(() => load()));
  const load = async () => {
    const [found, bound] = await Promise.all([get("/api/schemas", { deleted: deleted.checked }, view.signal), get("/api/topic-schemas", {}, view.signal)]);
    subjects.update(found.subjects);
    topics.update(bound.topics);
  };
  deleted.addEventListener("change", () => view.attempt(load));
  await load();
  view.live(load, 5);
}

/** @param {import("../app.js").View} view */
async function showOne(view) {
  const subject = view.argument;
  const base = `/api/schemas/${encodeURIComponent(subject)}`;
  const found = await get(`${base}/versions`, { deleted: true }, view.signal);
  const numbers = found.versions.map((/** @type {any} */ each) => each.version);
  const versions = new Table([
    { title: "Version", cell: (row) => h("span", {}, count(row.version), row.deleted ? [" ", badge("deleted", "warn")] : null) },
    { title: "Type", cell: (row) => row.schema_type },
    { title: "Registered", cell: (row) => time(row.created_at_ms * 1000).slice(0, 19) },
    { title: "By", cell: (row) => row.created_by, optional: true },
    { title: "Description", cell: (row) => row.description, optional: true },
    { title: "Registry id", number: true, cell: (row) => row.registry_id },
    { title: "Uses", cell: (row) => commas(row.references.map((/** @type {any} */ each) => h("a", { href: link("schemas", each.subject), title: each.name }, `${each.subject} ${each.version}`))), optional: true },
    { title: "Used by", cell: (row) => row.referenced_by.join(", "), optional: true },
  ], (row) => row.version, empty("No version left"), "Versions");
  versions.update([...found.versions].reverse());
  const old = pick("old", numbers, Number(view.query.old) || numbers[Math.max(0, numbers.length - 2)]);
  const next = pick("new", numbers, Number(view.query.new) || numbers[numbers.length - 1]);
  const result = h("div", {});
  const renewed = async () => { location.hash = link("schemas", subject, { at: found.versions.length + 1 }); };
  const compare = async () => {
    const both = await get(`${base}/differences`, { old: old.value, new: next.value }, view.signal);
    view.remember({ old: old.value, new: next.value });
    const lines = difference(comparable(both.old.definition ?? ""), comparable(both.new.definition ?? ""));
    const classes = { "+": "added", "-": "removed", " ": "" };
    replace(result, canRead(both.old, both.new, both.reasons.forward), canRead(both.new, both.old, both.reasons.backward),
      h("pre", { class: "diff", tabindex: 0, role: "region", "aria-label": "Difference" }, lines.map((line) => h("span", { class: classes[line.mark] }, `${line.mark} ${line.text}`))));
  };
  old.addEventListener("change", () => view.attempt(compare));
  next.addEventListener("change", () => view.attempt(compare));
  replace(view.root, heading(subject, h("span", {}, "Compatibility: ", badge(found.mode))),
    h("div", { class: "card" }, h("h2", {}, "Versions"), versions.element),
    h("div", { class: "card" }, h("h2", {}, "Difference"), h("form", { class: "filters" }, h("label", {}, "From version", old), h("label", {}, "To version", next)), result),
    checkCard(subject, found, renewed), registerCard(subject, found.versions.at(-1)?.references ?? [], renewed));
  await compare();
}

/** @param {string} name @param {number[]} numbers @param {number} chosen */
function pick(name, numbers, chosen) {
  const field = /** @type {HTMLSelectElement} */ (h("select", { name }, numbers.map((number) => h("option", { value: number }, number))));
  field.value = String(chosen);
  return field;
}

/**
 * Registering a version: of a new subject, or the next one of this.
 * @param {string} subject  empty: it is asked for
 * @param {any[]} references
 * @param {() => Promise<void>} reload
 */
function registerCard(subject, references, reload) {
  const name = input("subject", subject, { required: true });
  const type = select("type", TYPES[0], Object.fromEntries(TYPES.map((each) => [each, each])));
  const text = /** @type {HTMLTextAreaElement} */ (h("textarea", { name: "definition", required: true, spellcheck: "false", placeholder: '{"type": "object", "required": ["id"]}' }));
  const said = h("div", { role: "status" });
  const submit = async (/** @type {Event} */ event) => {
    event.preventDefault();
    await told(said, async () => {
      const made = await send("POST", `/api/schemas/${encodeURIComponent(name.value)}/versions`, { type: type.value, definition: text.value, references });
      await reload();
      return `Version ${made.version} of ${name.value} is registered.`;
    });
  };
  return h("details", { class: "card" }, h("summary", {}, subject ? "Register a version" : "Register a schema"), h("form", { class: "publish", "aria-label": "Register", onsubmit: submit },
    h("div", { class: "filters" }, subject ? null : h("label", {}, "Subject", name), h("label", {}, "Type", type)), h("label", {}, "Text of the schema", text), h("div", { class: "actions" }, h("button", {}, "Register"))), said);
}

/** Binding a topic to a subject. @param {() => Promise<void>} reload */
function bindCard(reload) {
  const topic = input("topic", "", { required: true });
  const subject = input("subject", "", { required: true });
  const policy = select("policy", "enforce", { enforce: "enforce: refuse", warn: "warn: accept and log", none: "none: do not check" });
  const said = h("div", { role: "status" });
  const submit = async (/** @type {Event} */ event) => {
    event.preventDefault();
    const strict = policy.value === "enforce" ? "Messages that it does not admit are refused and kept in Rejected." : "Messages are accepted, whether it admits them or not.";
    if (!(await confirmed(`Messages of topic ${topic.value} must fit the schema ${subject.value}. ${strict} This applies immediately.`, "Bind the topic"))) return;
    await told(said, async () => {
      await send("PUT", `/api/topic-schemas/${encodeURIComponent(topic.value)}`, { subject: subject.value, policy: policy.value, validate_payload: policy.value !== "none" });
      await reload();
      return `Topic ${topic.value} is bound to ${subject.value}, policy ${policy.value}.`;
    });
  };
  return h("details", { class: "card" }, h("summary", {}, "Bind a topic to a schema"), h("form", { class: "filters", "aria-label": "Bind", onsubmit: submit },
    h("label", {}, "Topic", topic), h("label", {}, "Subject", subject), h("label", {}, "Policy", policy), h("div", { class: "actions" }, h("button", {}, "Bind"))), said);
}

/** @param {string} subject @param {any} found @param {() => Promise<void>} reload */
function checkCard(subject, found, reload) {
  const base = `/api/schemas/${encodeURIComponent(subject)}`;
  const latest = found.versions.filter((/** @type {any} */ each) => !each.deleted).at(-1) ?? found.versions.at(-1);
  const references = latest?.references ?? [];
  const text = /** @type {HTMLTextAreaElement} */ (h("textarea", { name: "definition", spellcheck: "false", placeholder: "Definition of the next version" }));
  const type = /** @type {HTMLSelectElement} */ (h("select", { name: "type" }, [...new Set([latest?.schema_type ?? TYPES[0], ...TYPES])].map((each) => h("option", { value: each }, each))));
  const result = h("div", { role: "status" });
  const load = async () => {
    try {
      text.value = comparable((await get(`${base}/versions/latest`, { deleted: true })).definition ?? "");
    } catch (error) {
      replace(result, h("div", { class: "notice bad" }, /** @type {Error} */ (error).message));
    }
  };
  /** What was checked, even if the text has changed since. @param {any} checked */
  const offer = (checked) => h("p", { class: "actions" }, h("button", { type: "button", onclick: () => told(result, async () => {
    const made = await send("POST", `${base}/versions`, checked);
    await reload();
    return `Version ${made.version} of ${subject} is registered.`;
  }) }, "Register it"));
  const check = async (/** @type {Event} */ event) => {
    event.preventDefault();
    const sent = { type: type.value, definition: text.value, references };
    try {
      const checked = await send("POST", `${base}/check`, sent);
      replace(result, verdict(checked.reasons, `Compatible with version ${checked.version} (${checked.mode}).`, `Not compatible with version ${checked.version} (${checked.mode}):`), checked.reasons.length ? null : offer(sent));
    } catch (error) {
      replace(result, h("div", { class: "notice bad" }, /** @type {Error} */ (error).message));
    }
  };
  return h("div", { class: "card" }, h("h2", {}, "Check a new version"), references.length ? h("p", {}, `With the references of version ${latest.version}.`) : null, h("form", { onsubmit: check },
    h("label", {}, "Definition", text), h("p", { class: "actions" }, h("label", { class: "row" }, "Type", type), h("button", {}, "Check"),
      h("button", { type: "button", class: "quiet", onclick: load }, "Start with the latest"))), result);
}

/** @param {any} reader @param {any} data @param {string[]} reasons why not */
function canRead(reader, data, reasons) {
  const [who, what] = [`Readers of version ${reader.version}`, `data of version ${data.version}`];
  return verdict(reasons, `${who} can read ${what}.`, `${who} cannot read ${what}:`);
}

/** @param {string[]} reasons @param {string} yes @param {string} no */
function verdict(reasons, yes, no) {
  if (!reasons.length) return h("div", { class: "notice good" }, yes);
  return h("div", { class: "notice bad" }, no, h("ul", {}, reasons.map((reason) => h("li", {}, reason))));
}

/** @param {Node[]} links */
function commas(links) {
  return h("span", {}, links.flatMap((each, place) => (place ? [", ", each] : [each])));
}
