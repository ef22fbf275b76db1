// @ts-check
// What stands at the top of every page while the bus does not answer. Never a healthy picture of a bus that is away.

import { h, replace } from "./dom.js";
import { duration, time } from "./format.js";

export class Away {
  /** @param {HTMLElement} element */
  constructor(element) {
    this.element = element;
    this.sinceMs = 0;
    this.passed = h("span", { class: "soft", "aria-hidden": "true" }); // said once, not every second
    setInterval(() => this.#count(), 1000);
  }

  get isAway() {
    return this.sinceMs > 0;
  }

  /** @param {string} [reason]  if it answers, and refuses */
  begin(reason = "") {
    if (this.isAway) return;
    this.sinceMs = Date.now();
    const since = time(this.sinceMs * 1000).slice(11, 19);
    this.element.className = "away";
    replace(this.element, reason ? `No live figures since ${since}: ${reason}. ` : `The bus has not answered since ${since}. `,
      "Retrying every second. ", h("span", { class: "soft" }, "What is shown below is from before. "), this.passed);
    this.#count();
    this.element.hidden = false;
  }

  end() {
    this.sinceMs = 0;
    this.element.hidden = true;
    replace(this.element);
  }

  /** The scripts here are of another release than the bus. @param {string} version */
  outdated(version) {
    this.element.className = "away mild";
    replace(this.element, `The bus was updated to version ${version}. `, h("button", { type: "button", class: "quiet", onclick: () => location.reload() }, "Reload the console"));
    this.element.hidden = false;
  }

  #count() {
    if (this.isAway) this.passed.textContent = `(${duration(Math.round((Date.now() - this.sinceMs) / 1000) * 1e6)})`;
  }
}
