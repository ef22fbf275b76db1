// @ts-check
// Small drawings beside names: strokes on a field of 24 by 24.

import { s } from "./dom.js";

/** @type {Record<string, string>} */
const STROKES = {
  overview: "M4 12h6V4H4zM14 20h6v-9h-6zM14 4h6v3h-6zM4 20h6v-4H4z",
  topics: "M9.5 4 7.5 20M16.5 4l-2 16M4.5 9h16M3.5 15h16",
  messages: "M3.5 6h17v12.5h-17zM4 6.5l8 6.5 8-6.5",
  publish: "M4 12 20 4l-5 16-3.5-6.5zM11.5 13.5 20 4",
  subscriptions: "M4 6h10M4 12h7M4 18h4M17 5v14M13.5 15.5 17 19l3.5-3.5",
  traces: "M3.5 6h9M7.5 12h9M12.5 18h8",
  services: "M6 9a2.8 2.8 0 1 0 0-5.6 2.8 2.8 0 0 0 0 5.6zM18 20.6a2.8 2.8 0 1 0 0-5.6 2.8 2.8 0 0 0 0 5.6zM6 9v3.8a5 5 0 0 0 5 5h4",
  schemas: "M9 4H8a2 2 0 0 0-2 2v4l-2 2 2 2v4a2 2 0 0 0 2 2h1M15 4h1a2 2 0 0 1 2 2v4l2 2-2 2v4a2 2 0 0 1-2 2h-1",
  rejected: "M12 4.5 3 20h18zM12 10.5v4M12 17.2v.3",
  peers: "M9 11a3.4 3.4 0 1 0 0-6.8 3.4 3.4 0 0 0 0 6.8zM2.8 19.8c0-3.3 2.8-5.5 6.2-5.5s6.2 2.2 6.2 5.5M15.8 4.7a3.4 3.4 0 0 1 0 5.9M17.8 14.7c2 .8 3.4 2.7 3.4 5.1",
  pipeline: "M12 3.5 3.5 8l8.5 4.5L20.5 8zM3.5 12l8.5 4.5 8.5-4.5M3.5 16l8.5 4.5 8.5-4.5",
  journal: "M4.5 6c0-1.5 3.4-2.7 7.5-2.7s7.5 1.2 7.5 2.7-3.4 2.7-7.5 2.7S4.5 7.5 4.5 6zM4.5 6v12c0 1.5 3.4 2.7 7.5 2.7s7.5-1.2 7.5-2.7V6M4.5 12c0 1.5 3.4 2.7 7.5 2.7s7.5-1.2 7.5-2.7",
  cluster: "M9 3.5h6v5H9zM3.5 15.5h6v5h-6zM14.5 15.5h6v5h-6zM12 8.5V12M6.5 15.5V12h11v3.5",
  changes: "M4 12a8 8 0 1 0 2.5-5.8M4 4.5V8h3.5M12 8v4.5l3 2",
  api: "M8 7l-5 5 5 5M16 7l5 5-5 5M13.5 4.5l-3 15",
};

/** @param {string} name */
export function icon(name) {
  return s("svg", { class: "icon", viewBox: "0 0 24 24", "aria-hidden": "true" }, s("path", { d: STROKES[name] ?? "" }));
}
