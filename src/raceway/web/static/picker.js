// @ts-check
// Choosing the time that all pages show.

import { h, replace } from "./dom.js";
import { between, brief, local, range, RANGES } from "./range.js";

const OTHER = "other";

export class Picker {
  /** @param {HTMLSelectElement} field @param {(text: string) => void} choose */
  constructor(field, choose) {
    this.field = field;
    this.choose = choose;
    this.text = "";
    field.addEventListener("change", () => (field.value === OTHER ? this.#ask() : choose(field.value)));
  }

  /** Say what is shown. @param {string} text */
  tell(text) {
    this.text = text;
    const known = RANGES.some(([each]) => each === text);
    const nowUs = Date.now() * 1000;
    const shown = known ? null : range(text, nowUs);
    replace(this.field, RANGES.map(([value, title]) => h("option", { value }, title)), shown ? h("option", { value: text }, brief(shown, nowUs)) : null, h("option", { value: OTHER }, "From … to …"));
    this.field.value = text;
    this.field.title = shown?.title ?? "";
    this.field.classList.toggle("chosen", text !== "");
  }

  #ask() {
    this.field.value = this.text;
    const nowUs = Date.now() * 1000;
    const shown = range(this.text, nowUs);
    /** @param {number} us */
    const input = (us) => /** @type {HTMLInputElement} */ (h("input", { type: "datetime-local", step: 1, required: true, value: local(us) }));
    const [since, until] = [input(shown?.sinceUs ?? nowUs - 3600e6), input(shown?.untilUs ?? nowUs)];
    const dialog = /** @type {HTMLDialogElement} */ (h("dialog", { "aria-label": "Time shown" }));
    const submit = (/** @type {Event} */ event) => {
      event.preventDefault();
      const text = between(Date.parse(since.value) * 1000, Date.parse(until.value) * 1000);
      until.setCustomValidity(range(text, nowUs) ? "" : "This must be later than the first one");
      if (!until.reportValidity()) return;
      dialog.close();
      this.choose(text);
    };
    until.addEventListener("input", () => until.setCustomValidity(""));
    dialog.append(h("h2", {}, "Time shown"), h("form", { class: "token", onsubmit: submit }, h("label", {}, "From", since), h("label", {}, "Until", until),
      h("div", { class: "actions dialog-end" }, h("button", { type: "button", class: "quiet", onclick: () => dialog.close() }, "Cancel"), h("button", {}, "Show"))));
    dialog.addEventListener("close", () => dialog.remove());
    document.body.append(dialog);
    dialog.showModal();
  }
}
