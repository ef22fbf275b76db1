// @ts-check
// Rates over time: a chart with a line for each wire, read out under the pointer or with the arrow keys, and small
// lines for one wire alone.

import { h, replace, s, wireMark } from "./dom.js";
import { rate, short, time } from "./format.js";
import { ages, area, line, nearest, ticks } from "./scale.js";

const WIDTH = 1000;
const HEIGHT = 250;
const LEFT = 44;
const BOTTOM = 24;
const TOP = 10;
const RIGHT = 6;
const HALF_LABEL = 28;
const LEAST_S = 60;
const SPARK = { width: 200, height: 44, seconds: 60 };

/** @typedef {{time_us: number, wires: Record<string, number>}} Sample */

export class RateChart {
  /** @param {string[]} wires @param {number} most  seconds that are shown at most */
  constructor(wires, most) {
    this.wires = wires;
    this.most = most;
    this.seconds = LEAST_S;
    /** @type {Sample[]} */
    this.samples = [];
    /** @type {number | null} */
    this.chosen = null;
    this.drawing = s("svg", {
      class: "chart", viewBox: `0 0 ${WIDTH} ${HEIGHT}`, preserveAspectRatio: "none", role: "img", tabindex: 0,
      "aria-label": "Messages a second by wire", onpointermove: this.#point, onpointerleave: () => this.#choose(null), onkeydown: this.#key,
    });
    this.legend = h("div", { class: "legend", "aria-live": "off" });
    this.resized = new ResizeObserver(() => this.#draw());
    this.resized.observe(this.drawing);
  }

  /** @param {Sample[]} samples */
  update(samples) {
    this.samples = samples.slice(-this.most);
    const known = samples.length ? (samples[samples.length - 1].time_us - this.samples[0].time_us) / 1e6 : 0;
    this.seconds = Math.max(LEAST_S, known);
    this.#draw();
  }

  /** @param {PointerEvent} event */
  #point = (event) => {
    const box = this.drawing.getBoundingClientRect();
    this.#choose(nearest(this.#xs(box.width), event.clientX - box.left));
  };

  /** @param {KeyboardEvent} event */
  #key = (event) => {
    const step = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
    if (!step || !this.samples.length) return;
    event.preventDefault();
    const from = this.chosen ?? this.samples.length;
    this.#choose(Math.min(this.samples.length - 1, Math.max(0, from + step)));
  };

  /** @param {number | null} at */
  #choose(at) {
    this.chosen = this.samples.length ? at : null;
    this.#draw();
  }

  /** @param {number} width */
  #xs(width) {
    const last = this.samples[this.samples.length - 1]?.time_us ?? 0;
    const inside = width - LEFT - RIGHT;
    return this.samples.map((sample) => LEFT + inside * (1 - (last - sample.time_us) / (this.seconds * 1e6)));
  }

  #draw() {
    const width = Math.max(200, this.drawing.clientWidth || WIDTH);
    this.drawing.setAttribute("viewBox", `0 0 ${width} ${HEIGHT}`);
    const steps = ticks(Math.max(1, ...this.samples.flatMap((sample) => this.wires.map((wire) => sample.wires[wire] ?? 0))));
    const largest = steps[steps.length - 1];
    const ground = HEIGHT - BOTTOM;
    /** @param {number} value */
    const y = (value) => TOP + (ground - TOP) * (1 - value / largest);
    const xs = this.#xs(width);
    const grid = steps.map((step) => [
      s("line", { class: "grid", x1: LEFT, x2: width, y1: y(step), y2: y(step) }),
      s("text", { x: LEFT - 8, y: y(step) + 4, "text-anchor": "end" }, short(step)),
    ]);
    const marks = ages(this.seconds, width < 500 ? 3 : 5).map((age) => {
      const x = width - RIGHT - (width - LEFT - RIGHT) * (age / this.seconds);
      return s("text", { x, y: HEIGHT - 5, "text-anchor": !age ? "end" : x - LEFT < HALF_LABEL ? "start" : "middle" }, age ? ago(age) : "now");
    });
    const shapes = this.wires.map((wire) => {
      const ys = this.samples.map((sample) => y(sample.wires[wire] ?? 0));
      return s("g", { class: wire }, s("path", { class: "area", d: area(xs, ys, ground) }), s("path", { class: `line ${wire}`, d: line(xs, ys) }));
    });
    replace(this.drawing, ...grid.flat(), ...marks, ...shapes, ...this.#cursor(xs, y, ground));
    this.#tell();
  }

  /** @param {number[]} xs @param {(value: number) => number} y @param {number} ground */
  #cursor(xs, y, ground) {
    const sample = this.chosen === null ? undefined : this.samples[this.chosen];
    if (this.chosen === null || !sample) return [];
    const x = xs[this.chosen];
    return [s("line", { class: "cursor", x1: x, x2: x, y1: TOP, y2: ground }),
      ...this.wires.map((wire) => s("circle", { class: `dot ${wire}`, cx: x, cy: y(sample.wires[wire] ?? 0), r: 3.5 }))];
  }

  #tell() {
    const sample = this.samples[this.chosen ?? this.samples.length - 1];
    const when = this.chosen === null || !sample ? "now" : time(sample.time_us).slice(11, 19);
    const rows = this.wires.map((wire) => h("span", {}, wireMark(wire), " ", h("b", {}, rate(sample?.wires[wire] ?? 0))));
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
