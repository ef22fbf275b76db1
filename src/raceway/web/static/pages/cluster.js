// @ts-check
import { get } from "../api.js";
import { badge, empty, facts, h, heading, renew, replace, tile } from "../dom.js";
import { count, counted, time, zone } from "../format.js";
import { Table } from "../table.js";

/** @param {import("../app.js").View} view */
export async function show(view) {
  const about = h("div", {});
  const nodes = new Table([
    { title: "Console", cell: (row) => place(row.address), fixed: true, class: "wide" },
    { title: "Role", cell: (row) => badge(row.role, row.role === "owner" ? "good" : "") },
    { title: "Host", cell: (row) => h("span", { class: "mono" }, row.host), optional: true },
  ], (row) => row.address, empty("No node", "Start one: ", h("code", {}, "raceway serve --cluster kafka://HOST:PORT/NAME --advertise HOST")), "Nodes");
  const topics = new Table([
    { title: "Result", cell: (row) => badge(row.verdict, row.verdict === "ok" ? "good" : row.verdict === "bad" ? "bad" : "warn"), class: "tight" },
    { title: "Topic", cell: (row) => h("span", { class: "mono" }, row.topic) },
    { title: "Finding", cell: (row) => row.text, class: "wide" },
  ], (row) => `${row.topic} ${row.text}`, empty("No topic", "Kafka did not describe any."), "Topics in Kafka");
  const brokers = new Table([
    { title: "Id", cell: (row) => row.id, class: "tight" },
    { title: "Address", cell: (row) => h("span", { class: "mono" }, row.address), class: "wide" },
  ], (row) => row.id, empty("No broker", "None answers."), "Brokers");
  const alone = empty("This bus is alone", "Its journal is on its own disk. With the journal on Apache Kafka other nodes take over when one fails: ", h("code", {}, "raceway cluster init"));
  const cards = h("div", { hidden: true }, about, h("div", { class: "cards" }, h("div", { class: "card" }, h("h2", {}, "Nodes"), nodes.element), h("div", { class: "card" }, h("h2", {}, "Brokers"), brokers.element)),
    h("div", { class: "card" }, h("h2", {}, "Topics in Kafka"), topics.element));
  const single = h("div", { class: "card", hidden: true }, alone);
  replace(view.root, heading("Cluster", "Nodes with one journal on Apache Kafka: one serves, the others wait to take over."), single, cards);
  const load = async () => {
    const { cluster } = await get("/api/cluster", {}, view.signal);
    single.hidden = cluster !== null;
    cards.hidden = cluster === null;
    if (cluster === null) return;
    renew(about, ...described(cluster));
    nodes.update(members(cluster));
    topics.update(cluster.topics);
    brokers.update(cluster.brokers);
  };
  await load();
  view.live(load, 5);
}

/** @param {any} found */
function described(found) {
  const [lane] = found.lanes;
  const bad = found.topics.filter((/** @type {any} */ each) => each.verdict === "bad").length;
  return [
    bad ? h("div", { class: "notice bad", role: "alert" }, `${counted(bad, "finding")} below: acknowledged messages could be lost, or none are taken.`) : null,
    found.nodes < 2 ? h("div", { class: "notice warn" }, "With one node nobody takes over: start another.") : null,
    h("div", { class: "tiles" }, tile(found.nodes === 1 ? "node" : "nodes", count(found.nodes), found.nodes < 2 ? "warn" : ""), tile(found.brokers.length === 1 ? "broker" : "brokers", count(found.brokers.length)),
      tile("epoch", count(lane.epoch), "", "", "Offset of the claim by which the owner took the lane"), tile("records behind the snapshot", count(lane.behind_snapshot), "", "", "What a new owner has to read first")),
    h("div", { class: "card" }, h("h2", {}, found.name), facts([
      ["Owner", lane.node ? h("span", {}, lane.node, " (", place(lane.address), ")") : badge("nobody", "bad")], ["Since", lane.since_us ? `${time(lane.since_us)} ${zone(lane.since_us)}` : ""], ["Version", lane.version],
      ["Records in Kafka", lane.end > lane.first_offset ? `${count(lane.first_offset)} to ${count(lane.end - 1)}` : "none yet"], ["URL", h("span", { class: "mono" }, found.url)],
    ])),
  ];
}

/** Members of the group, and owners that it has lost sight of. @param {any} found */
function members(found) {
  const owners = found.lanes.filter((/** @type {any} */ lane) => lane.node).map((/** @type {any} */ lane) => lane.address);
  const known = found.members.map((/** @type {any} */ each) => each.address);
  const unseen = owners.filter((/** @type {string} */ address) => !known.includes(address)).map((/** @type {string} */ address) => ({ address, host: "not in the group" }));
  return [...found.members, ...unseen].map((each) => ({ ...each, role: owners.includes(each.address) ? "owner" : "standby" }));
}

/** @param {string} address  of a node's console, as the node tells it */
function place(address) {
  return /^https?:\/\//.test(address) ? h("a", { href: address, rel: "noreferrer" }, address) : h("span", { class: "mono" }, address);
}
