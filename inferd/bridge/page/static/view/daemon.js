/** What the daemon does for all: its queue, its memory and workers, the end of its log. */

import { Component } from "../vendor/preact.mjs";
import { count, duration, size } from "../chat/words.js";
import { visible } from "../text/controls.js";
import { html } from "./html.js";

/** Requests of the queue that are shown. */
const SHOWN = 20;
/** A worker of which nothing has been counted. */
const IDLE = { hits: 0, misses: 0, read: 0, kept: 0, savedBytes: 0, deaths: 0, deviceBytes: 0, residentBytes: 0 };

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
export class Workers extends Component {
  render() {
    const { daemon, backends } = this.props.machine;
    if (!daemon) return null;
    const { neededBytes, budgetBytes, workers } = daemon;
    const names = [...new Set([...(backends ?? []), ...workers].map(({ name }) => name))];
    const share = budgetBytes > 0 ? Math.min(1, neededBytes / budgetBytes) : 0;
    const text = `${size(neededBytes)} of ${size(budgetBytes)}`;
    return html`
      <h2>Memory and workers</h2>
      <p>The models need ${text} of memory that they may take. <meter min="0" max="1" high="0.95" value=${share} aria-label=${`Memory of the models: ${text}`}></meter></p>
      <table>
        <thead><tr><th>Model</th><th class="number">Slots</th><th class="number">Prompts in cache</th><th class="number">Tokens from cache</th><th class="number">Memory</th><th class="number">Saved prompts</th><th class="number">Deaths</th></tr></thead>
        <tbody>${names.map((name) => this.#row(workers.find((each) => each.name === name) ?? { ...IDLE, name }, backends?.find((each) => each.name === name)))}</tbody>
      </table>
    `;
  }

  /**
   * @param {import("../status/daemon.js").Worker} worker
   * @param {import("../state/machine.js").Backend | undefined} backend
   */
  #row(worker, backend) {
    const { machine } = this.props;
    const used = machine.requests?.filter(({ phase, backend: name }) => phase === "running" && name === worker.name).length ?? 0;
    return html`
      <tr key=${worker.name}>
        <td>${worker.name}</td>
        <td class="number">${backend?.n_slots ? `${count(used)} of ${count(backend.n_slots)}` : ""}</td>
        <td class="number">${percent(worker.hits, worker.hits + worker.misses)}</td>
        <td class="number">${percent(worker.kept, worker.read)}</td>
        <td class="number">${worker.residentBytes ? size(worker.residentBytes) : ""}</td>
        <td class="number">${worker.savedBytes ? size(worker.savedBytes) : "none"}</td>
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
