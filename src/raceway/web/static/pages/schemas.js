// @ts-check
import { get, send } from "../api.js";
import { badge, empty, h, heading, replace, topicLink } from "../dom.js";
import { comparable, difference } from "../diff.js";
import { count, time } from "../format.js";
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
  ], (row) => row.topic, empty("No topic is bound to a schema", "Bind one: ", h("code", {}, "raceway schema bind orders.created orders --policy enforce")), "Bound topics");
  const deleted = /** @type {HTMLInputElement} */ (h("input", { type: "checkbox", name: "deleted", checked: view.query.deleted === "true" }));
  replace(view.root, heading("Schemas", "Schemas of payloads, and the topics that are bound to them."),
    h("div", { class: "card" }, h("h2", {}, "Subjects"), h("form", { class: "filters" }, h("label", { class: "row" }, deleted, "Show deleted")), subjects.element), h("div", { class: "card" }, h("h2", {}, "Topics"), topics.element));
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
  const compare = async () => {
    const both = await get(`${base}/differences`, { old: old.value, new: next.value }, view.signal);
    history.replaceState(null, "", link("schemas", subject, { old: old.value, new: next.value }));
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
    checkCard(base, found));
  await compare();
}

/** @param {string} name @param {number[]} numbers @param {number} chosen */
function pick(name, numbers, chosen) {
  const field = /** @type {HTMLSelectElement} */ (h("select", { name }, numbers.map((number) => h("option", { value: number }, number))));
  field.value = String(chosen);
  return field;
}

/** @param {string} base @param {any} found */
function checkCard(base, found) {
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
  return h("div", { class: "card" }, h("h2", {}, "Check a new version"), references.length ? h("p", {}, `With the references of version ${latest.version}.`) : null, h("form", {
    onsubmit: async (/** @type {Event} */ event) => {
      event.preventDefault();
      try {
        const checked = await send("POST", `${base}/check`, { type: type.value, definition: text.value, references });
        replace(result, verdict(checked.reasons, `Compatible with version ${checked.version} (${checked.mode}). Register it with raceway schema register.`, `Not compatible with version ${checked.version} (${checked.mode}):`));
      } catch (error) {
        replace(result, h("div", { class: "notice bad" }, /** @type {Error} */ (error).message));
      }
    },
  }, h("label", {}, "Definition", text), h("p", { class: "actions" }, h("label", { class: "row" }, "Type", type), h("button", {}, "Check"),
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
