// @ts-check
import { get } from "../api.js";
import { badge, empty, facts, h, heading, renew, replace } from "../dom.js";
import { bytes, count, duration, time } from "../format.js";
import { Table } from "../table.js";

/** @param {import("../app.js").View} view */
export async function show(view) {
  const about = h("div", {});
  const figures = h("div", {});
  const segments = new Table([
    { title: "File", cell: (row) => h("span", { class: "mono" }, row.file), fixed: true, class: "wide" },
    { title: "Kind", cell: (row) => badge(row.kind, row.kind === "active" ? "good" : "") },
    { title: "Positions", cell: (row) => (row.last < row.first ? "none yet" : `${count(row.first)} to ${count(row.last)}`), class: "tight" },
    { title: "Rows", number: true, cell: (row) => count(row.rows) },
    { title: "Size", number: true, cell: (row) => bytes(row.bytes) },
    { title: "Oldest", cell: (row) => time(row.oldest_us).slice(0, 19), class: "tight" },
    { title: "Newest", cell: (row) => time(row.newest_us).slice(0, 19), class: "tight" },
  ], (row) => row.file, empty("No file", "Rows are kept in memory only (journal.durability is memory)."), "Segments");
  const damage = new Table([
    { title: "What", cell: (row) => badge(row.kind, row.kind === "repaired" || row.kind === "rebuilt" ? "warn" : "bad") },
    { title: "File", cell: (row) => row.file, class: "wide" },
    { title: "Rows", number: true, cell: (row) => count(row.rows) },
    { title: "Why", cell: (row) => row.reason },
  ], (row) => `${row.kind} ${row.file} ${row.position} ${row.first}`, empty("No damage found", "All checksums read so far were correct. Verify all of them: ", h("code", {}, "raceway journal verify")), "Damage");
  replace(view.root, heading("Journal", "The log in which every message is stored."),
    h("div", { class: "cards" }, h("div", { class: "card" }, h("h2", {}, "Health"), about), h("div", { class: "card" }, h("h2", {}, "Since the start"), figures)),
    h("div", { class: "card" }, h("h2", {}, "Damage"), damage.element), h("div", { class: "card" }, h("h2", {}, "Segments, newest first"), segments.element));
  const load = async () => {
    const { health, folder, segments: files } = await get("/api/journal", {}, view.signal);
    renew(about, facts([
      ["Status", badge(health.status.replace("_", " "), health.status === "ok" ? "good" : "bad")], ["Why", health.reason], ...health.warnings.map((/** @type {string} */ text) => /** @type {[string, string]} */ (["Warning", text])), ["Folder", h("span", { class: "mono" }, folder)],
      ["Durability", health.durability], ["Positions", health.committed < 0 ? "none yet" : `${count(health.first_position)} to ${count(health.committed)}`],
      ["Segments", count(health.segments)], ["Size", bytes(health.bytes)], ["Disk", health.disk_bytes > 0 ? `${bytes(health.free_bytes)} of ${bytes(health.disk_bytes)} free` : ""], ["Waiting for the disk", bytes(health.unsynced_bytes)],
      ...(health.archive ? [/** @type {[string, any]} */ (["Archive", h("span", { class: "mono" }, health.archive.url)]), /** @type {[string, any]} */ (["Archived", `${count(health.archive.segments)} segments; ${count(health.archive.waiting_segments)} wait (${bytes(health.archive.waiting_bytes)})`])] : []),
    ]));
    renew(figures, facts([
      ["Rows", count(health.rows)], ["Blocks", count(health.blocks)], ["Syncs", count(health.syncs)], ["Last sync", duration(health.last_sync_us)],
      ["Slowest sync", duration(health.slowest_sync_us)], ["Refused writes", count(health.refusals)], ["Repairs", count(health.repairs)],
      ["Rows in quarantine", count(health.quarantined_rows)], ["Rows missing", count(health.missing_rows)],
    ]));
    damage.update(health.damage);
    segments.update(files);
  };
  await load();
  view.live(load, 3);
}
