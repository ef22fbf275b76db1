// @ts-check
// Charts of a range of time: rates, lag and time until answers, of the whole bus or of one topic.

import { get } from "./api.js";
import { LineChart } from "./chart.js";
import { empty, h, loading } from "./dom.js";
import { count, duration, short } from "./format.js";
import { times } from "./range.js";

const HOUR_US = 3600e6;

/**
 * @typedef {import("./chart.js").Window} Window
 * @typedef {Record<string, (number | null)[]>} Lines  by name
 */

class PastChart {
  /** @param {string} title @param {string} nothing  what an empty one says @param {ConstructorParameters<typeof LineChart>[1]} more */
  constructor(title, nothing, more) {
    this.chart = new LineChart(title, more);
    this.nothing = empty(nothing);
    this.pending = loading();
    this.element = h("div", { class: "card" }, h("div", { class: "card-head" }, h("h2", {}, title), this.chart.legend), this.chart.drawing, this.nothing, this.pending);
    this.#reveal(this.pending);
  }

  /** @param {number[]} moments @param {Lines} lines @param {Window} window */
  update(moments, lines, window) {
    const names = Object.keys(lines).filter((name) => lines[name].some((value) => value !== null));
    this.#reveal(names.length ? this.chart.drawing : this.nothing);
    this.chart.between(names, moments.map((time_us, at) => ({ time_us, values: Object.fromEntries(names.map((name) => [name, lines[name][at]])) })), window);
  }

  /** @param {Element} shown */
  #reveal(shown) {
    for (const each of [this.chart.drawing, this.chart.legend, this.nothing, this.pending]) each.toggleAttribute("hidden", each !== shown && !(each === this.chart.legend && shown === this.chart.drawing));
  }
}

class Past {
  /** @param {import("./app.js").View} view @param {string} path @param {Record<string, string>} query @param {string} answers  title @param {boolean} isLow */
  constructor(view, path, query, answers, isLow) {
    this.view = view;
    this.path = path;
    this.query = query;
    const nothing = "Nothing was measured in this time";
    this.rates = new PastChart("Messages a second", nothing, { low: isLow });
    this.lag = new PastChart("Messages behind", nothing, { said: count, step: short, low: true });
    this.answers = new PastChart(answers, "No request was answered in this time", { said: duration, step: (us) => (us ? duration(us) : "0"), low: true });
  }

  /** What the bus knows of the chosen range, or of the last hour. */
  async ask() {
    const chosen = this.view.range();
    const found = await get(this.path, { ...this.query, ...times(chosen) }, this.view.signal);
    const nowUs = Date.now() * 1000;
    const window = { begin_us: chosen?.sinceUs ?? nowUs - HOUR_US, end_us: chosen?.untilUs ?? nowUs, gaps: found.gaps };
    return { found, window };
  }
}

/** The whole bus. */
export class BusPast extends Past {
  /** @param {import("./app.js").View} view */
  constructor(view) {
    super(view, "/api/history/bus", {}, "99 of 100 answers within, by wire", false);
    this.element = h("div", {}, this.rates.element, h("div", { class: "cards" }, this.lag.element, this.answers.element));
  }

  async load() {
    const { found, window } = await this.ask();
    this.rates.update(found.times_us, found.rates, window);
    this.lag.update(found.times_us, { behind: found.lag }, window);
    this.answers.update(found.times_us, Object.fromEntries(Object.entries(found.answers).map(([wire, each]) => [wire, /** @type {any} */ (each).p99_us])), window);
  }
}

/** One topic. */
export class TopicPast extends Past {
  /** @param {import("./app.js").View} view @param {string} topic */
  constructor(view, topic) {
    super(view, "/api/history/topic", { topic }, "Time until an answer", true);
    this.element = h("div", { class: "cards charts" }, this.rates.element, this.lag.element, this.answers.element);
  }

  async load() {
    const { found, window } = await this.ask();
    this.rates.update(found.times_us, { messages: found.rate }, window);
    this.lag.update(found.times_us, { behind: found.lag }, window);
    this.answers.update(found.times_us, { median: found.answers.median_us, p99: found.answers.p99_us }, window);
  }
}

/** The lag of all readers alone. */
export class LagPast extends Past {
  /** @param {import("./app.js").View} view */
  constructor(view) {
    super(view, "/api/history/bus", {}, "", true);
    this.element = this.lag.element;
  }

  async load() {
    const { found, window } = await this.ask();
    this.lag.update(found.times_us, { behind: found.lag }, window);
  }
}

/** Topics of a range, the busiest first. @param {import("./app.js").View} view @param {number} limit */
export async function busiest(view, limit) {
  return (await get("/api/history/topics", { limit, ...times(view.range()) }, view.signal)).topics;
}

