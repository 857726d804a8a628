/** What the daemon does for all: its queue, its memory and workers, the end of its log. */

import { Component } from "../vendor/preact.mjs";
import { count, duration, size } from "../chat/words.js";
import { visible } from "../text/controls.js";
import { html } from "./html.js";

/** Requests of the queue that are shown. */
const SHOWN = 20;

/**
 * @typedef {import("../state/machine.js").Machine} Machine
 * @typedef {import("../state/machine.js").Asked} Asked
 * @typedef {{ machine: Machine }} Props
 */

/**
 * @typedef {{ title: string, requests: Asked[], nOmitted: number, hasNames: boolean }} QueueProps
 * @extends {Component<QueueProps>}
 */
export class Queue extends Component {
  render() {
    const { title, requests, nOmitted, hasNames } = this.props;
    const shown = requests.slice(0, SHOWN);
    const n_more = requests.length - shown.length + nOmitted;
    return html`
      <h2>${title}</h2>
      ${shown.length === 0 ? html`<p class="hint">None runs, and none waits.</p>` : html`
        <table>
          <thead><tr>${hasNames ? html`<th>Who</th>` : null}<th>Model</th><th>State</th><th class="number">Tokens</th><th class="number">Since</th></tr></thead>
          <tbody>${shown.map((asked) => html`
            <tr>
              ${hasNames ? html`<td>${asked.principal ?? `uid ${asked.uid}`}</td>` : null}
              <td>${asked.backend ?? asked.model ?? ""}</td>
              <td>${place(asked)}</td>
              <td class="number">${count(asked.output_tokens)}</td>
              <td class="number">${duration(asked.age_ms / 1000)}</td>
            </tr>`)}
          </tbody>
        </table>`}
      ${n_more > 0 ? html`<p class="hint">And ${count(n_more)} more.</p>` : null}
    `;
  }
}

/** @param {Asked} asked @returns {string} */
function place({ phase, position }) {
  if (phase === "running") return "running";
  return position ? `place ${count(position)}` : "waiting";
}

/** @extends {Component<Props>} */
export class Lately extends Component {
  render() {
    const overview = this.props.machine.daemon?.overview;
    if (!overview) return null;
    const { ended, failed, window_s: seconds, first_token_ms: first, total_ms: whole } = overview;
    return html`
      <h2>The last ${duration(seconds)}</h2>
      ${ended === 0
        ? html`<p class="hint">No request has ended.</p>`
        : html`<p>${count(ended)} requests have ended, ${count(failed)} of them with an error.${times("The first word came after", first)}${times("All of an answer took", whole)}</p>`}
    `;
  }
}

/** @param {string} what @param {import("../status/daemon.js").Percentiles | undefined} times @returns {string} */
function times(what, { p50, p95 } = { p50: -1, p95: -1 }) {
  return p95 < 0 ? "" : ` ${what} ${seconds(p50)} for half of them, and ${seconds(p95)} at most for 95 %.`;
}

/** @param {number} ms @returns {string} */
function seconds(ms) {
  if (ms < 1000) return `${Math.max(1, Math.round(ms))} ms`;
  return ms < 10_000 ? `${(ms / 1000).toFixed(1)} s` : duration(ms / 1000);
}

/** @extends {Component<Props>} */
export class Workers extends Component {
  render() {
    const { daemon } = this.props.machine;
    if (!daemon) return null;
    const { overview, workers } = daemon;
    const needed = overview.memory_needed_bytes;
    const budget = overview.memory_budget_bytes;
    const share = budget > 0 ? Math.min(1, needed / budget) : 0;
    const text = `${size(needed)} of ${size(budget)}`;
    const n_more = overview.omitted_models ?? 0;
    return html`
      <h2>Memory and workers</h2>
      <p>The models need ${text} of memory that they may take; the machine has ${size(overview.memory_available_bytes)} left. <meter min="0" max="1" high="0.95" value=${share} aria-label=${`Memory of the models: ${text}`}></meter></p>
      <table>
        <thead><tr><th>Model</th><th class="number">Slots</th><th class="number">Prompts in cache</th><th class="number">Tokens from cache</th><th class="number">Memory</th><th class="number">Saved prompts</th><th class="number">Deaths</th></tr></thead>
        <tbody>${workers.map((worker) => this.#row(worker))}</tbody>
      </table>
      ${n_more > 0 ? html`<p class="hint">And ${count(n_more)} more.</p>` : null}
    `;
  }

  /** @param {import("../status/daemon.js").Worker} worker */
  #row(worker) {
    return html`
      <tr key=${worker.name}>
        <td>${worker.name}</td>
        <td class="number">${worker.slots ? `${count(worker.running)} of ${count(worker.slots)}` : ""}</td>
        <td class="number">${percent(worker.hits, worker.hits + worker.misses)}</td>
        <td class="number">${percent(worker.kept, worker.read)}</td>
        <td class="number">${worker.resident_bytes ? size(worker.resident_bytes) : ""}</td>
        <td class="number">${worker.cache_bytes ? size(worker.cache_bytes) : "none"}</td>
        <td class="number">${count(worker.deaths)}</td>
      </tr>
    `;
  }
}

/** @param {number} part @param {number} all @returns {string} */
function percent(part, all) {
  return all > 0 ? `${Math.round((100 * Math.min(part, all)) / all)} %` : "none yet";
}

/** @extends {Component<Props>} */
export class LogTail extends Component {
  render() {
    const { log, refused } = this.props.machine;
    if (log === null)
      return refused.log ? html`<h2>Log</h2><p class="hint">${visible(refused.log.message)}</p>` : null;
    return html`
      <h2>Log</h2>
      <ol class="log" tabindex="0" aria-label="Newest lines of the daemon's log, the newest first">
        ${log.toReversed().map(({ at, level, what, more }) => html`<li class=${level === "info" || level === "debug" ? "" : "bad"}><time>${at}</time> ${level} <strong>${visible(what)}</strong> ${visible(more)}</li>`)}
      </ol>
    `;
  }
}
