// @ts-check
import { ApiError, get, send } from "../api.js";
import { badge, empty, flagged, h, heading, replace, wireMark } from "../dom.js";
import { ago, count, outOf } from "../format.js";
import { confirmed, told } from "../policies.js";
import { Table } from "../table.js";

/** @param {import("../app.js").View} view */
export async function show(view) {
  const filter = /** @type {HTMLInputElement} */ (h("input", { type: "search", placeholder: "name, address or wire" }));
  const note = h("span", { class: "soft", role: "status" });
  let nowUs = Date.now() * 1000;
  const peers = new Table([
    { title: "Name", cell: (row) => h("span", { title: row.id }, row.name || row.aliases.join(", ") || (row.address ? h("span", { class: "soft" }, "no name") : h("span", { class: "mono soft" }, row.id)), row.catching_up ? [" ", badge("catching up", "warn")] : null,
      row.description ? h("div", { class: "soft" }, row.description) : null), class: "name" },
    { title: "Wire", cell: (row) => wireMark(row.wire), fixed: true },
    { title: "Address", cell: (row) => h("span", { class: "mono" }, row.address), optional: true },
    { title: "Connected", cell: (row) => ago(row.connected_us, nowUs) },
    { title: "Last heard", cell: (row) => ago(row.heard_us, nowUs) },
    { title: "Subscriptions", number: true, cell: (row) => count(row.subscriptions) },
    { title: "Errors", number: true, cell: (row) => flagged(row.errors, "bad") },
    { title: "Actions", unseen: true, fixed: true, class: "tight", cell: (row) => (row.address ? h("button", { type: "button", class: "quiet", "aria-label": `Disconnect ${nameOf(row)}`, onclick: () => disconnect(row) }, "Disconnect") : "") },
  ], (row) => row.id, empty("No peers are connected", "Connect with: ", h("code", {}, "raceway sub 'baggage.#'")), "Peers");
  const patterns = new Table([
    { title: "Pattern", cell: (row) => row.pattern, class: "wide" },
    { title: "For", cell: (row) => (row.kind === "request" ? "answers requests" : "receives publishes") },
    { title: "Subscribers", number: true, cell: (row) => count(row.subscribers.length) },
  ], (row) => `${row.kind} ${row.pattern}`, empty("No pattern", "No connected peer subscribes or answers."), "Patterns");
  const behind = new Table([
    { title: "Answers", cell: (row) => row.serves, class: "wide" },
    { title: "Wire", cell: (row) => wireMark(row.wire) },
    { title: "Address", cell: (row) => h("span", { class: "mono" }, row.url) },
    { title: "State", cell: (row) => h("span", { title: row.reason }, badge(row.state, row.state === "up" ? "good" : row.state === "down" ? "bad" : "")) },
    { title: "Dialect", cell: (row) => row.dialect },
    { title: "Calls", number: true, cell: (row) => count(row.calls) },
    { title: "Failed", number: true, cell: (row) => flagged(row.failures, "bad") },
  ], (row) => `${row.wire} ${row.serves} ${row.url}`, empty("No service is attached", "Services behind the bus, to which it connects by itself, are listed here."), "Services behind the bus");
  const said = h("div", { role: "status" });
  /** @param {any} row */
  const disconnect = async (row) => {
    const who = nameOf(row);
    if (!(await confirmed(`The connection of ${who} (${row.wire}) is closed. What it has not acknowledged is delivered again, to it or to others; its open requests fail. It may connect again.`, "Disconnect it"))) return;
    await told(said, async () => {
      await send("DELETE", `/api/peers/${encodeURIComponent(row.id)}`);
      await load();
      return `${who} was disconnected.`;
    });
  };
  const patternNote = h("span", { class: "soft" });
  const behindCard = h("div", { class: "card" }, h("h2", {}, "Services behind the bus"), behind.element);
  replace(view.root, heading("Peers", "Connected peers and their subscriptions."), said,
    h("div", { class: "card" }, h("div", { class: "card-head" },
      h("form", { class: "filters", onsubmit: (/** @type {Event} */ event) => event.preventDefault() }, h("label", {}, "Find", filter)), note), peers.element),
    h("div", { class: "card" }, h("div", { class: "card-head" }, h("h2", {}, "Patterns"), patternNote), patterns.element), behindCard);
  const load = async () => {
    const [found, subscribed] = await Promise.all([get("/api/peers", { contains: filter.value, limit: 200 }, view.signal), get("/api/subscriptions", { limit: 200 }, view.signal)]);
    nowUs = Date.now() * 1000;
    peers.update(found.peers);
    patterns.update(subscribed.subscriptions);
    patternNote.textContent = subscribed.total > subscribed.subscriptions.length ? outOf(subscribed.subscriptions.length, subscribed.total, "pattern") : "";
    note.textContent = outOf(found.peers.length, found.total, "peer");
  };
  const services = async () => {
    try {
      behind.update((await get("/api/services", {}, view.signal)).services);
    } catch (error) {
      if (!(error instanceof ApiError)) throw error;
      behindCard.hidden = true; // for administrators only
    }
  };
  filter.addEventListener("input", () => view.attempt(load));
  await Promise.all([load(), services()]);
  view.live(load);
  view.live(services, 3);
}

/** @param {any} row */
function nameOf(row) {
  return row.name || row.aliases.join(", ") || row.address;
}
