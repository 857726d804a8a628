/** A call of a tool: what is asked, whether it may be made, and what came of it. */

import { Component } from "../vendor/preact.mjs";
import { visible } from "../text/controls.js";
import { html } from "./html.js";

/** Characters of a tool's input and result that are shown. */
const MAX_SHOWN = 4000;

/** @type {Record<string, string>} */
const WORDS = { waiting: "Wants to call", running: "Calls", done: "Called", failed: "Call failed:", denied: "Not called:", told: "Calls" };

/**
 * @typedef {import("../chat/branches.js").ToolCall} ToolCall
 * @typedef {{ call: ToolCall, isOver: boolean, decide: (call: ToolCall, isAllowed: boolean) => Promise<boolean> }} Props
 * @extends {Component<Props>}
 */
export class CallView extends Component {
  #isDecided = false;

  /** @param {boolean} isAllowed */
  #decide(isAllowed) {
    return async () => {
      this.#isDecided = true;
      this.setState({});
      this.#isDecided = await this.props.decide(this.props.call, isAllowed);
      this.setState({});
    };
  }

  render() {
    const { call, isOver } = this.props;
    const state = call.state ?? "told";
    const isWaiting = state === "waiting" && !isOver && !this.#isDecided;
    const isRunning = !isOver && !isWaiting && (state === "running" || state === "waiting");
    const words = isOver && (state === "waiting" || state === "running") ? "Not called:" : (WORDS[isRunning ? "running" : state] ?? "Calls");
    const name = visible(call.name).slice(0, 100);
    return html`
      <div class="tool-call" data-state=${state}>
        <details open=${isWaiting}>
          <summary>${isRunning ? html`<span class="busy">${words}</span>` : words} <code>${name}</code></summary>
          ${this.#text("Input", JSON.stringify(call.input, null, 2) ?? "")}
          ${typeof call.result === "string" ? this.#text("Result", call.result) : null}
        </details>
        ${isWaiting
          ? html`<p class="decision" role="group" aria-label=${`May ${name} be called?`}>
              <button type="button" class="primary" onClick=${this.#decide(true)}>Allow</button>
              <button type="button" onClick=${this.#decide(false)}>Deny</button>
            </p>`
          : null}
      </div>
    `;
  }

  /** @param {string} label @param {string} text */
  #text(label, text) {
    const shown = visible(text.slice(0, MAX_SHOWN));
    return html`<pre tabindex="0" role="region" aria-label=${label}>${shown}${text.length > MAX_SHOWN ? "…" : ""}</pre>`;
  }
}
