// @ts-check
// Figures over time: a chart with a line for each name, read out under the pointer or with the arrow keys, and small
// lines for one wire alone. What was not measured is a gap.

import { h, replace, s, wireClass, wireMark } from "./dom.js";
import { rate, short, time } from "./format.js";
import { ages, area, line, moments, nearest, runs, ticks } from "./scale.js";

const WIDTH = 1000;
const LEFT = 52;
const BOTTOM = 24;
const TOP = 10;
const RIGHT = 6;
const HALF_LABEL = 28;
const LEAST_S = 60;
const SPARK = { width: 200, height: 44, seconds: 60 };

/**
 * @typedef {{time_us: number, wires: Record<string, number>}} Sample
 * @typedef {{time_us: number, values: Record<string, number | null>}} Point
 * @typedef {{begin_us: number, end_us: number, gaps: number[]}} Window  what is shown, and before which points nothing was measured
 */

export class LineChart {
  /**
   * @param {string} label
   * @param {object} [more]
   * @param {(value: number) => string} [more.said]  a figure of the legend
   * @param {(value: number) => string} [more.step]  a figure of the axis
   * @param {boolean} [more.low]  of half the height
   */
  constructor(label, { said = rate, step = short, low = false } = {}) {
    this.said = said;
    this.step = step;
    this.height = low ? 170 : 250;
    /** @type {string[]} */
    this.names = [];
    /** @type {Point[]} */
    this.points = [];
    /** @type {Window} */
    this.window = { begin_us: 0, end_us: 1, gaps: [] };
    this.isLive = false;
    /** @type {number | null} */
    this.chosen = null;
    this.drawing = s("svg", {
      class: low ? "chart low" : "chart", viewBox: `0 0 ${WIDTH} ${this.height}`, preserveAspectRatio: "none", role: "img", tabindex: 0,
      "aria-label": label, onpointermove: this.#point, onpointerleave: () => this.#choose(null), onkeydown: this.#key,
    });
    this.legend = h("div", { class: "legend", "aria-live": "off" });
    this.resized = new ResizeObserver(() => this.#draw());
    this.resized.observe(this.drawing);
  }

  /** The last minutes, up to now. @param {string[]} names @param {Point[]} points */
  live(names, points) {
    const end_us = points[points.length - 1]?.time_us ?? 0;
    const known = points.length ? end_us - points[0].time_us : 0;
    this.isLive = true;
    this.#show(names, points, { begin_us: end_us - Math.max(LEAST_S * 1e6, known), end_us, gaps: [] });
  }

  /** Another time. @param {string[]} names @param {Point[]} points @param {Window} window */
  between(names, points, window) {
    this.isLive = false;
    this.#show(names, points, window);
  }

  /** @param {string[]} names @param {Point[]} points @param {Window} window */
  #show(names, points, window) {
    this.names = names;
    this.points = points;
    this.window = window;
    if (this.chosen !== null && this.chosen >= points.length) this.chosen = null;
    this.#draw();
  }

  /** @param {PointerEvent} event */
  #point = (event) => {
    const box = this.drawing.getBoundingClientRect();
    this.#choose(nearest(this.#xs(box.width), event.clientX - box.left));
  };

  /** @param {KeyboardEvent} event */
  #key = (event) => {
    const by = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
    if (!by || !this.points.length) return;
    event.preventDefault();
    const from = this.chosen ?? this.points.length;
    this.#choose(Math.min(this.points.length - 1, Math.max(0, from + by)));
  };

  /** @param {number | null} at */
  #choose(at) {
    this.chosen = this.points.length ? at : null;
    this.#draw();
  }

  /** @param {number} width @returns {(us: number) => number} */
  #across(width) {
    const { begin_us: begin, end_us: end } = this.window;
    return (us) => LEFT + ((width - LEFT - RIGHT) * (us - begin)) / (end - begin);
  }

  /** @param {number} width */
  #xs(width) {
    return this.points.map((point) => this.#across(width)(point.time_us));
  }

  #draw() {
    const width = Math.max(200, this.drawing.clientWidth || WIDTH);
    this.drawing.setAttribute("viewBox", `0 0 ${width} ${this.height}`);
    const steps = ticks(Math.max(1, ...this.points.flatMap((point) => this.names.map((name) => point.values[name] ?? 0))));
    const largest = steps[steps.length - 1];
    const ground = this.height - BOTTOM;
    /** @param {number} value */
    const y = (value) => TOP + (ground - TOP) * (1 - value / largest);
    const xs = this.#xs(width);
    const grid = steps.map((step) => [
      s("line", { class: "grid", x1: LEFT, x2: width, y1: y(step), y2: y(step) }),
      s("text", { x: LEFT - 8, y: y(step) + 4, "text-anchor": "end" }, this.step(step)),
    ]);
    const marks = this.#instants(width).map(([us, text]) => {
      const x = this.#across(width)(us);
      return s("text", { x, y: this.height - 5, "text-anchor": width - RIGHT - x < HALF_LABEL ? "end" : x - LEFT < HALF_LABEL ? "start" : "middle" }, text);
    });
    const shapes = this.names.map((name) => {
      const parts = runs(this.points.map((point) => point.values[name]), this.window.gaps).map((run) => ({ xs: run.map((at) => xs[at]), ys: run.map((at) => y(this.points[at].values[name] ?? 0)) }));
      return s("g", { class: wireClass(name) }, s("path", { class: "area", d: parts.map((part) => area(part.xs, part.ys, ground)).join("") }), s("path", { class: `line ${wireClass(name)}`, d: parts.map((part) => line(part.xs, part.ys)).join("") }));
    });
    replace(this.drawing, ...grid.flat(), ...marks, ...shapes, ...this.#cursor(xs, y, ground));
    this.#tell();
  }

  /** Moments of the axis with what they are called. @param {number} width @returns {[number, string][]} */
  #instants(width) {
    const { begin_us: begin, end_us: end } = this.window;
    if (this.isLive) return ages((end - begin) / 1e6, width < 500 ? 3 : 5).map((age) => [end - age * 1e6, age ? ago(age) : "now"]);
    const isLong = end - begin > 25 * 3600e6;
    return moments(begin, end, width < 500 ? 3 : 6).map((us) => [us, time(us).slice(isLong ? 5 : 11, end - begin < 300e6 ? 19 : 16)]);
  }

  /** @param {number[]} xs @param {(value: number) => number} y @param {number} ground */
  #cursor(xs, y, ground) {
    const point = this.chosen === null ? undefined : this.points[this.chosen];
    if (this.chosen === null || !point) return [];
    const x = xs[this.chosen];
    return [s("line", { class: "cursor", x1: x, x2: x, y1: TOP, y2: ground }),
      ...this.names.filter((name) => point.values[name] !== null).map((name) => s("circle", { class: `dot ${wireClass(name)}`, cx: x, cy: y(point.values[name] ?? 0), r: 3.5 }))];
  }

  #tell() {
    const point = this.points[this.chosen ?? this.points.length - 1];
    const when = !point ? "" : this.chosen === null && this.isLive ? "now" : time(point.time_us).slice(this.window.end_us - this.window.begin_us > 25 * 3600e6 ? 5 : 11, 19);
    const rows = this.names.map((name) => h("span", {}, wireMark(name), " ", h("b", {}, point?.values[name] === null || point?.values[name] === undefined ? "–" : this.said(point.values[name] ?? 0))));
    replace(this.legend, h("span", { class: "soft when" }, when), ...rows);
  }
}

/** One wire: its rate now, its last minute, and all since the start. */
export class WireCard {
  /** @param {string} wire */
  constructor(wire) {
    this.wire = wire;
    this.rate = h("b", {});
    this.total = h("span", { class: "soft" });
    this.drawing = s("svg", { class: `spark ${wire}`, viewBox: `0 0 ${SPARK.width} ${SPARK.height}`, preserveAspectRatio: "none", "aria-hidden": "true" });
    this.element = h("div", { class: `wire-card ${wire}`, role: "group", "aria-label": wire }, h("div", { class: "wire-head" }, wireMark(wire)), this.rate, this.drawing, this.total);
  }

  /** @param {Sample[]} samples @param {number} now @param {string} total */
  update(samples, now, total) {
    this.rate.textContent = rate(now);
    this.total.textContent = total;
    const shown = samples.slice(-SPARK.seconds);
    const largest = Math.max(1, ...shown.map((sample) => sample.wires[this.wire] ?? 0));
    const xs = shown.map((_, at) => SPARK.width * (1 - (shown.length - 1 - at) / (SPARK.seconds - 1)));
    const ys = shown.map((sample) => 3 + (SPARK.height - 5) * (1 - (sample.wires[this.wire] ?? 0) / largest));
    replace(this.drawing, s("path", { class: "area", d: area(xs, ys, SPARK.height) }), s("path", { class: "stroke", d: line(xs, ys) }));
  }
}

/** @param {number} seconds  round ones */
function ago(seconds) {
  if (seconds < 60 || seconds % 30) return `${seconds} s ago`;
  return `${Math.floor(seconds / 60)}${seconds % 60 ? "½" : ""} min ago`;
}
