// @ts-check
import { get, send } from "../api.js";
import { badge, choices, empty, h, heading, momentLink, replace, topicLink, wireMark } from "../dom.js";
import { clock, count, counted } from "../format.js";
import { link } from "../route.js";
import { Table } from "../table.js";

const PAGE = 100;
/** @type {Record<string, string>} */
const SOURCES = { rejected: "schema", dead_letter: "dead letter", undeliverable: "undeliverable" };
/** @type {[string, string][]} */
const KINDS = [["", "All"], ["rejected", "Refused by a schema"], ["dead_letter", "Dead letters"], ["undeliverable", "Undeliverable"]];

/** @param {import("../app.js").View} view */
export async function show(view) {
  const said = h("div", { role: "status" });
  const note = h("span", { class: "soft" });
  const more = /** @type {HTMLButtonElement} */ (h("button", { type: "button", class: "quiet", hidden: true }, "More"));
  /** @param {any} row @param {HTMLButtonElement} button */
  const redrive = async (row, button) => {
    button.disabled = true;
    try {
      const done = await send("POST", `/api/rejected/${row.position}/redrive`, {});
      replace(said, h("div", { class: "notice good" }, `Message ${count(row.position)} was sent again to `, topicLink(done.topic), "."));
      await first();
    } catch (error) {
      replace(said, h("div", { class: "notice bad" }, `Message ${count(row.position)} was refused again: ${/** @type {Error} */ (error).message}`));
    } finally {
      button.disabled = false;
    }
  };
  const table = new Table([
    { title: "Time", cell: (row) => momentLink(link("messages", row.position), row.time_us), fixed: true, class: "tight" },
    { title: "Belongs to", cell: (row) => row.topic, fixed: true },
    { title: "What", cell: (row) => badge(SOURCES[row.source] ?? row.source, row.source === "rejected" ? "warn" : "bad"), fixed: true },
    { title: "Wire", cell: (row) => wireMark(row.wire), fixed: true },
    { title: "Why", cell: (row) => h("span", {}, row.reason || row.code || "", row.subscription ? h("span", { class: "soft" }, ` · subscription ${row.subscription}`) : null), fixed: true, class: "wide" },
    { title: "Sent again", optional: true, cell: (row) => (row.redriven ? h("span", { class: "soft" }, `${clock(row.redriven.time_us, Date.now() * 1000).slice(0, -4)} to ${row.redriven.topic}`) : "") },
    { title: "Actions", unseen: true, fixed: true, class: "tight", cell: (row) => {
      const button = /** @type {HTMLButtonElement} */ (h("button", { type: "button", class: "quiet", "aria-label": `Send again: message ${row.position}`, onclick: () => redrive(row, button) }, "Send again"));
      return button;
    } },
  ], (row) => row.position, empty("Nothing was rejected", "No messages refused by a schema with policy enforce, no dead letters, no undeliverable messages."), "Rejected messages");
  replace(view.root, heading("Rejected", "Messages refused by a schema, dead letters, and undeliverable messages. Sending one again checks the schema again and keeps the correlation id."),
    said, h("div", { class: "card" }, h("div", { class: "card-head" }, choices("Which", KINDS, view.query.source ?? "", (source) => link("rejected", "", { source })), note), table.element, more));
  const { source = "" } = view.query;
  /** @type {any[]} */
  let rows = [];
  /** @type {number | null} */
  let after = null;
  const first = async () => {
    const found = await get("/api/rejected", { limit: PAGE, source }, view.signal);
    if (rows.length > PAGE) return; // somebody reads further down
    rows = found.rejected;
    after = found.after;
    render();
  };
  const render = () => {
    table.update(rows);
    more.hidden = after === null || after === undefined;
    note.textContent = !rows.length ? "" : more.hidden ? counted(rows.length, "message") : `the newest ${counted(rows.length, "message")}`;
  };
  more.addEventListener("click", () => view.attempt(async () => {
    const found = await get("/api/rejected", { limit: PAGE, source, after }, view.signal);
    rows = [...rows, ...found.rejected];
    after = found.after;
    render();
  }));
  await first();
  view.live(first, 2);
}
