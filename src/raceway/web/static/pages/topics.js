// @ts-check
import { get, isDenied, send } from "../api.js";
import { empty, facts, flagged, h, heading, renew, replace, topicLink, wireMark } from "../dom.js";
import { count, outOf, rate } from "../format.js";
import { asking, link } from "../route.js";
import { Table } from "../table.js";
import { messageTable } from "./messages.js";
import { TopicPast } from "../past.js";
import { confirmed, inFlight, input, newCard, Policies, told } from "../policies.js";

const PAGE = 100;

/** @param {import("../app.js").View} view */
export async function show(view) {
  await (view.argument ? showOne(view) : showAll(view));
}

/** @param {import("../app.js").View} view */
async function showAll(view) {
  const filter = /** @type {HTMLInputElement} */ (h("input", { type: "search", name: "contains", placeholder: "part of a name" }));
  const order = /** @type {HTMLSelectElement} */ (h("select", { name: "order" },
    h("option", { value: "rate" }, "busiest first"), h("option", { value: "messages" }, "most messages first"), h("option", { value: "name" }, "by name")));
  filter.value = view.query.contains ?? "";
  order.value = view.query.order || "rate";
  const note = h("span", { class: "soft", role: "status" });
  const more = /** @type {HTMLButtonElement} */ (h("button", { type: "button", class: "quiet", hidden: true }, "More"));
  const table = new Table([
    { title: "Topic", cell: (row) => topicLink(row.topic), fixed: true, class: "wide" },
    { title: "Rate", number: true, cell: (row) => rate(row.rate) },
    { title: "Messages", number: true, cell: (row) => count(row.next - row.first) },
    { title: "First offset", number: true, cell: (row) => count(row.first) },
    { title: "Next offset", number: true, cell: (row) => count(row.next) },
    { title: "Subscriptions", number: true, cell: (row) => count(row.subscriptions) },
    { title: "Backlog", number: true, cell: (row) => flagged(row.backlog, "warn") },
  ], (row) => row.topic, empty("No topic", "No topic with such a name. Try: ", h("code", {}, "raceway pub baggage.events '{\"bag\": 17}'")), "Topics");
  let shown = PAGE;
  const load = async () => {
    const found = await get("/api/topics", { contains: filter.value, order: order.value, limit: shown }, view.signal);
    table.update(found.topics);
    note.textContent = outOf(found.topics.length, found.total, "topic");
    more.hidden = found.topics.length >= found.total || shown >= 1000;
  };
  const again = () => {
    shown = PAGE;
    view.remember({ contains: filter.value, order: order.value === "rate" ? "" : order.value });
    view.attempt(load);
  };
  filter.addEventListener("input", again);
  order.addEventListener("change", again);
  more.addEventListener("click", () => {
    shown = Math.min(1000, shown + 200);
    view.attempt(load);
  });
  replace(view.root, heading("Topics", "All topics, with their rate and backlog."),
    h("div", { class: "card" }, h("div", { class: "card-head" }, h("form", { class: "filters", onsubmit: (/** @type {Event} */ event) => event.preventDefault() },
      h("label", {}, "Find", filter), h("label", {}, "Order", order)), note), table.element, more), newCard("", load), topicCard(load));
  await load();
  view.live(load, 2);
}

/** Making a topic before its first message. @param {() => Promise<void>} reload */
function topicCard(reload) {
  const name = input("topic", "", { required: true });
  const partitions = input("partitions", "", { type: "number", min: 1, placeholder: "none" });
  const subject = input("subject", "", { placeholder: "none" });
  const said = h("div", { "aria-live": "polite" });
  const submit = async (/** @type {Event} */ event) => {
    event.preventDefault();
    await told(said, async () => {
      const made = await send("POST", "/api/topics", { topic: name.value, partitions: partitions.value ? Number(partitions.value) : null, subject: subject.value || null });
      await reload();
      return `Topic ${made.topic} was created${made.partitions.length ? `, with ${made.partitions.length} partitions` : ""}.`;
    });
  };
  return h("details", { class: "card" }, h("summary", {}, "New topic"), h("p", { class: "soft" }, "A topic is created by its first message; here, if it is to have partitions or a schema."),
    h("form", { class: "filters", "aria-label": "New topic", onsubmit: submit }, h("label", {}, "Name of the topic", name), h("label", {}, "Partitions", partitions), h("label", {}, "Subject of its schema", subject), h("div", { class: "actions" }, h("button", {}, "Create"))), said);
}

/** @param {import("../app.js").View} view */
async function showOne(view) {
  const name = view.argument;
  const about = h("div", {});
  const policies = new Policies(() => load());
  const subscriptions = new Table([
    { title: "Subscription", cell: (row) => row.name },
    { title: "Type", cell: (row) => row.type },
    { title: "Lag", number: true, cell: (row) => flagged(row.lag, "warn") },
    { title: "In flight", number: true, cell: (row) => inFlight(row) },
    { title: "Waiting", number: true, cell: (row) => count(row.waiting) },
    { title: "Poisoned", number: true, cell: (row) => flagged(row.poisoned, "bad") },
    { title: "Delivered", number: true, cell: (row) => count(row.delivered) },
    { title: "Dead letters", number: true, cell: (row) => count(row.dead_letters) },
    { title: "Consumers", cell: (row) => row.consumers.join(", ") || "none" },
    { title: "Actions", unseen: true, fixed: true, class: "tight", cell: (row) => h("button", { type: "button", class: "quiet", "aria-label": `Policy of ${row.name}`, onclick: () => policies.open(row) }, "Policy") },
  ], (row) => row.name, empty("No subscription by name", "Created by Danube consumers or with the form below; peers of other wires subscribe while they are connected."), "Subscriptions");
  const consumers = new Table([
    { title: "Who", cell: (row) => row.name || row.id, class: "wide" },
    { title: "Wire", cell: (row) => wireMark(row.wire), fixed: true },
    { title: "Does", cell: (row) => row.role },
  ], (row) => `${row.id} ${row.role}`, empty(""), "Connected");
  const past = new TopicPast(view, name);
  const latest = messageTable(empty("No messages", "All were removed by retention, or the topic has only answers."), true);
  replace(view.root, heading(name, "", h("div", { class: "actions" }, h("a", { class: "button", href: link("publish", "", { topic: name }) }, "Publish"),
    h("a", { class: "button quiet", href: link("messages", "", { topic: name }) }, "Search its messages"), h("a", { class: "button quiet", href: link("messages", "", { topic: name, follow: true }) }, "Follow"),
    h("button", { type: "button", class: "quiet", onclick: () => remove() }, "Delete topic"))), policies.stuck, policies.said,
    h("div", { class: "cards" }, h("div", { class: "card" }, h("h2", {}, "Topic"), about), h("div", { class: "card" }, h("h2", {}, "Connected"), consumers.element)),
    h("h2", { class: "part" }, view.range()?.title ?? "Last hour"), past.element, h("div", { class: "card" }, h("h2", {}, "Subscriptions"), subscriptions.element), policies.form,
    newCard(name, () => load()), h("div", { class: "card" }, h("h2", {}, "Latest messages"), latest.element));
  const remove = async () => {
    if (!(await confirmed(`Topic ${name} is deleted with its partitions and subscriptions: what they have not delivered will not be. Its messages stay in the journal until retention removes them.`, "Delete the topic"))) return;
    await told(policies.said, async () => {
      await send("DELETE", `/api/topics${asking({ topic: name })}`);
      location.hash = "#/topics";
      return "";
    });
  };
  const load = async () => {
    const found = await get(`/api/topics/${encodeURIComponent(name)}`, {}, view.signal);
    renew(about, facts([
      ["Rate", rate(found.rate)], ["Messages", count(found.next - found.first)], ["Offsets", `${count(found.first)} to ${count(found.next - 1)}`],
      ["Backlog", count(found.backlog)], ["Partitions", found.partitions.join(", ")],
      ["Schema", found.subject ? h("span", {}, h("a", { href: link("schemas", found.subject) }, found.subject), `, policy ${found.policy}`) : ""],
      ["Queue", found.queue ? `${found.queue.pubsub ? "publish/subscribe" : "ordinary"}, ${count(found.queue.waiting)} waiting, ${count(found.queue.consumers)} consumers, created by ${found.queue.creator || "unknown"}` : ""],
    ]));
    subscriptions.update(found.subscriptions);
    policies.update(found.subscriptions);
    const isRead = found.subscriptions.some((/** @type {any} */ each) => each.consumers.length) || found.queue?.consumers;
    renew(/** @type {HTMLElement} */ (consumers.ifEmpty), h("b", {}, isRead ? "No other peer listens or answers" : "No connected peer listens or answers"),
      isRead ? "Consumers of its subscriptions and queue are told with these." : "Subscribe with: ", isRead ? null : h("code", {}, `raceway sub '${name}'`));
    consumers.update(found.consumers);
  };
  await load();
  view.live(load);
  await past.load();
  view.live(() => past.load(), 10);
  const recent = async () => {
    try {
      latest.update((await get(`/api/topics/${encodeURIComponent(name)}/messages`, { limit: 20 }, view.signal)).messages);
    } catch (error) {
      if (!isDenied(error)) throw error;
      latest.update([]);
      replace(/** @type {HTMLElement} */ (latest.ifEmpty), h("b", {}, "No permission to read messages"), /** @type {Error} */ (error).message);
    }
  };
  await recent();
  view.live(recent, 5);
}
