// @ts-check
import { get } from "../api.js";
import { badge, choices, empty, h, heading, momentLink, onlyOf, replace, wireMark } from "../dom.js";
import { clock, counted } from "../format.js";
import { confirmed } from "../policies.js";
import { Redrive } from "../redrive.js";
import { times } from "../range.js";
import { link } from "../route.js";
import { Table } from "../table.js";

const PAGE = 100;
/** @type {Record<string, string>} */
const SOURCES = { rejected: "schema", dead_letter: "dead letter", undeliverable: "undeliverable" };
/** @type {[string, string][]} */
const KINDS = [["", "All"], ["rejected", "Refused by a schema"], ["dead_letter", "Dead letters"], ["undeliverable", "Undeliverable"]];
/** @type {Record<string, string>} */
const ADVICE = {
  rejected: "Register a schema that admits them, or edit each before it is sent again.",
  dead_letter: "Mend the consumer that failed, then send them again; or edit each before.",
  undeliverable: "See that their receiver is there again and takes them, then send them again.",
};

/** @param {import("../app.js").View} view */
export async function show(view) {
  const { source = "", topic = "" } = view.query;
  const note = h("span", { class: "soft", role: "status" });
  const more = /** @type {HTMLButtonElement} */ (h("button", { type: "button", class: "quiet", hidden: true }, "More"));
  const ofTopic = /** @type {HTMLInputElement} */ (h("input", { type: "search", name: "topic", placeholder: "any", autocomplete: "off" }));
  ofTopic.value = topic;
  /** @type {any[]} */
  let rows = [];
  /** @type {number | null} */
  let after = null;
  /** @type {Set<number>} */
  const chosen = new Set();
  const redrive = new Redrive(() => first());
  const stop = /** @type {HTMLButtonElement} */ (h("button", { type: "button", class: "quiet", hidden: true }, "Stop"));
  const those = /** @type {HTMLButtonElement} */ (h("button", { type: "button", disabled: true }, "Send selected again"));
  const everyone = /** @type {HTMLButtonElement} */ (h("button", { type: "button", class: "quiet" }, "Send all of these again"));
  const whole = /** @type {HTMLInputElement} */ (h("input", { type: "checkbox", onchange: () => choose(rows, whole.checked) }));
  /** @param {any[]} which @param {boolean} wanted */
  const choose = (which, wanted) => {
    for (const row of which) {
      if (wanted) chosen.add(row.position);
      else chosen.delete(row.position);
    }
    for (const box of /** @type {NodeListOf<HTMLInputElement>} */ (table.body.querySelectorAll("input[type=checkbox]"))) box.checked = chosen.has(Number(box.value));
    those.disabled = chosen.size === 0;
    those.textContent = chosen.size ? `Send ${counted(chosen.size, "selected message")} again` : "Send selected again";
  };
  const table = new Table([
    { title: "Select", unseen: true, fixed: true, class: "tight", cell: (row) => h("input", { type: "checkbox", value: row.position, "aria-label": `Select message ${row.position}`, checked: chosen.has(row.position),
      onchange: (/** @type {Event} */ event) => choose([row], /** @type {HTMLInputElement} */ (event.target).checked) }) },
    { title: "Time", cell: (row) => momentLink(link("messages", row.position), row.time_us), fixed: true, class: "tight" },
    { title: "Belongs to", cell: (row) => row.topic, fixed: true },
    { title: "What", cell: (row) => badge(SOURCES[row.source] ?? row.source, row.source === "rejected" ? "warn" : "bad"), fixed: true },
    { title: "Wire", cell: (row) => wireMark(row.wire), fixed: true },
    { title: "Why", cell: (row) => h("span", {}, row.reason || row.code || "", row.subscription ? h("span", { class: "soft" }, ` · subscription ${row.subscription}`) : null,
      row.redriven ? h("div", { class: "soft" }, `Sent again at ${clock(row.redriven.time_us, Date.now() * 1000).slice(0, -4)} to ${row.redriven.topic}`) : null), fixed: (row) => row.redriven?.time_us, class: "wide" },
    { title: "Actions", unseen: true, fixed: true, class: "tight acts", cell: (row) => h("span", {}, redrive.button(row.position), " ", redrive.editor(row.position)) },
  ], (row) => row.position, empty("Nothing was rejected", topic ? `Nothing of topic ${topic}.` : "No messages refused by a schema with policy enforce, no dead letters, no undeliverable messages."), "Rejected messages");
  const advice = h("p", { class: "soft", hidden: !ADVICE[source] }, ADVICE[source] ?? "");
  const bulk = h("div", { class: "actions", hidden: true }, h("label", { class: "row" }, whole, "Select all that are shown"), those, everyone, stop);
  replace(view.root, heading("Rejected", "Messages refused by a schema, dead letters, and undeliverable messages. Sending one again checks the schema again and keeps the correlation id." + onlyOf(view.range())),
    redrive.said, h("div", { class: "card" }, h("div", { class: "card-head" }, choices("Which", KINDS, source, (value) => link("rejected", "", { source: value, topic })),
      h("form", { class: "filters", onsubmit: (/** @type {Event} */ event) => { event.preventDefault(); location.hash = link("rejected", "", { source, topic: ofTopic.value.trim() }); } }, h("label", {}, "Topic", ofTopic)), note), advice, bulk, table.element, more));
  const first = async () => {
    const found = await get("/api/rejected", { limit: PAGE, source, topic, ...times(view.range()) }, view.signal);
    if (rows.length > PAGE) return; // somebody reads further down
    rows = found.rejected;
    after = found.after;
    render();
  };
  const render = () => {
    table.update(rows);
    bulk.hidden = !rows.length;
    more.hidden = after === null || after === undefined;
    note.textContent = !rows.length ? "" : more.hidden ? counted(rows.length, "message") : `the newest ${counted(rows.length, "message")}`;
  };
  /** All that match and were not sent again yet, page by page. */
  const matching = async () => {
    /** @type {number[]} */
    const found = [];
    for (let next = /** @type {number | null | string} */ (""); next !== null && found.length < 10_000;) {
      const page = await get("/api/rejected", { limit: 500, source, topic, after: next, ...times(view.range()) }, view.signal);
      found.push(...page.rejected.filter((/** @type {any} */ row) => !row.redriven).map((/** @type {any} */ row) => row.position));
      next = page.after;
    }
    return found.reverse(); // as they came
  };
  /** @param {number[]} positions */
  const sendAll = async (positions) => {
    if (!positions.length || !(await confirmed(`${counted(positions.length, "message")} will be published again on ${positions.length === 1 ? "its own topic" : "their own topics"}. Consumers that took some of them get those twice.`, "Send them again"))) return;
    stop.hidden = false;
    await redrive.all(positions, stop, view.signal);
    stop.hidden = true;
    choose(rows, false);
    chosen.clear();
    whole.checked = false;
    await first();
  };
  those.addEventListener("click", () => view.attempt(() => sendAll([...chosen].sort((a, b) => a - b))));
  everyone.addEventListener("click", () => view.attempt(async () => sendAll(await matching())));
  more.addEventListener("click", () => view.attempt(async () => {
    const found = await get("/api/rejected", { limit: PAGE, source, topic, after, ...times(view.range()) }, view.signal);
    rows = [...rows, ...found.rejected];
    after = found.after;
    render();
  }));
  await first();
  view.live(first, 2);
}
