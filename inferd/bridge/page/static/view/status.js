/** What the machine does: requests, shares, models. */

import { Component } from "../vendor/preact.mjs";
import { count, size } from "../chat/words.js";
import { KEPT } from "../state/machine.js";
import { Lately, LogTail, Queue, Workers } from "./daemon.js";
import { html, Watching } from "./html.js";
import { Plot, rates } from "./plot.js";

/** Users of whom the share is shown. */
const SHOWN = 12;
/** Looks that a plot has room for at first: a minute. */
const FEWEST = 30;

/**
 * @typedef {import("../state/machine.js").Machine} Machine
 * @typedef {{ machine: Machine, session: import("../state/session.js").Session }} Props
 * @extends {Watching<Props>}
 */
export class StatusView extends Watching {
  watched() {
    return [this.props.machine];
  }

  componentDidMount() {
    super.componentDidMount();
    this.props.machine.start();
  }

  componentWillUnmount() {
    super.componentWillUnmount();
    this.props.machine.stop();
  }

  render() {
    const { machine, session } = this.props;
    return html`
      <section class="status" aria-label="Status" tabindex="0">
        <h1>Status</h1>
        ${this.#readiness()}
        <button type="button" class="quiet" aria-pressed=${machine.isPaused} onClick=${() => machine.togglePause()}>Pause</button>
        ${this.#plots()}
        ${machine.requests ? html`<${Queue} title="Queue" requests=${machine.requests} nOmitted=${machine.nOmitted} hasNames=${true} />` : this.#own()}
        ${machine.isAdmin ? this.#all() : null}
        <${Stored} machine=${machine} />
        <${Shares} title="Failures" all=${machine.failures} unit="requests" hasNoShare absent="None since the bridge began." />
        <p class="hint">inferd ${session.server?.version}. Requests of the bridge, shares and failures are counted since it began.</p>
      </section>
    `;
  }

  /** What concerns who has signed in. */
  #own() {
    const { own } = this.props.machine;
    if (!own) return null;
    const share = own.all_tokens > 0 ? Math.round((100 * own.tokens) / own.all_tokens) : 0;
    return html`
      <${Queue} title="Your requests" requests=${own.requests} nOmitted=${0} hasNames=${false} />
      <p>You have used ${count(own.tokens)} tokens since the bridge began, ${share} % of what all have, and may have ${count(own.requests_at_once)} requests at once.</p>
    `;
  }

  /** What is told to admins alone. */
  #all() {
    const { machine } = this.props;
    return html`
      <${Shares} title="Users' shares" all=${machine.shares} unit="tokens" absent="None since the bridge began." />
      <${Backends} machine=${machine} />
      <${Lately} machine=${machine} />
      <${Workers} machine=${machine} />
      <${LogTail} machine=${machine} />
    `;
  }

  #readiness() {
    const { isReady } = this.props.machine;
    if (isReady === null) return html`<p class="state"><span class="busy">Looking</span></p>`;
    return isReady
      ? html`<p class="state good">The daemon answers.</p>`
      : html`<p class="state bad">The daemon does not answer. <code>inferd doctor</code> on the machine says why.</p>`;
  }

  #plots() {
    const { machine, session } = this.props;
    if (machine.refused.metrics) return null;
    const { looks } = machine;
    const whole = (/** @type {number} */ value) => count(Math.round(value));
    const places = Math.min(KEPT, Math.max(FEWEST, looks.length));
    const limit = session.server?.max_requests ?? 1;
    if (machine.daemonLooks.length > 0) return this.#daemonPlots();
    return html`
      <div class="plots">
        <${Plot} title="Requests with the daemon" values=${looks.map(({ running }) => running)} places=${places} of=${` of ${count(limit)}`} say=${whole} />
        <${Plot} title="Tokens a second" values=${rates(looks, ({ tokens }) => tokens)} places=${places} say=${whole} />
        <${Plot} title="Connections" values=${looks.map(({ connections }) => connections)} places=${places} say=${whole} />
      </div>
    `;
  }

  #daemonPlots() {
    const { daemonLooks: looks } = this.props.machine;
    const whole = (/** @type {number} */ value) => count(Math.round(value));
    const places = Math.min(KEPT, Math.max(FEWEST, looks.length));
    return html`
      <div class="plots">
        <${Plot} title="Running" values=${looks.map(({ running }) => running)} places=${places} say=${whole} />
        <${Plot} title="In the queue" values=${looks.map(({ waiting }) => waiting)} places=${places} say=${whole} />
        <${Plot} title="Tokens a second" values=${rates(looks, ({ tokens }) => tokens)} places=${places} say=${whole} />
      </div>
    `;
  }
}

/**
 * @typedef {{ title: string, all: [string, number][], unit: string, absent: string, hasNoShare?: boolean }} SharesProps
 * @extends {Component<SharesProps>}
 */
class Shares extends Component {
  render() {
    const { title, all, unit, absent, hasNoShare } = this.props;
    const sum = all.reduce((total, [, value]) => total + value, 0);
    return html`
      <h2>${title}</h2>
      ${sum === 0 ? html`<p class="hint">${absent}</p>` : html`
        <table class="shares">
          <thead><tr><th>Name</th><th class="number">${unit}</th>${hasNoShare ? null : html`<th class="number">share</th>`}</tr></thead>
          <tbody>
            ${all.slice(0, SHOWN).map(([name, value]) => html`
              <tr>
                <td>${name}</td>
                <td class="number">${count(value)}</td>
                ${hasNoShare ? null : html`<td class="number"><meter min="0" max="1" value=${value / sum} aria-label=${`Share of ${name}`}></meter> <span class="share">${Math.round((100 * value) / sum)} %</span></td>`}
              </tr>
            `)}
          </tbody>
        </table>
      `}
    `;
  }
}

/**
 * @typedef {{ machine: Machine }} MachineProps
 * @extends {Component<MachineProps>}
 */
class Backends extends Component {
  render() {
    const { machine } = this.props;
    return html`
      <h2>Models that are served</h2>
      ${machine.backends === null
        ? html`<p class="hint">${absence(machine.refused.backends, "admin")}</p>`
        : html`
          <table>
            <thead><tr><th>Model</th><th>State</th><th class="number">Context</th><th><span class="unseen">What can be done</span></th></tr></thead>
            <tbody>${machine.backends.map((backend) => this.#row(backend))}</tbody>
          </table>
        `}
    `;
  }

  /** @param {import("../state/machine.js").Backend} backend */
  #row({ name, aliases, ready, state, unavailable, n_ctx: context }) {
    const { machine } = this.props;
    const isBusy = machine.busy.has(name);
    const isLoaded = state === "loaded" || state === "ready" || (state !== "unloaded" && ready);
    const order = isLoaded ? "unload" : "load";
    const label = isLoaded ? "Unload" : "Load";
    return html`
      <tr key=${name}>
        <td>${name}${aliases?.length ? html` <span class="hint">${aliases.join(", ")}</span>` : null}</td>
        <td>${(state ?? (ready ? "ready" : "not ready")).replaceAll("_", " ")}${unavailable ? html` <span class="hint">${unavailable}</span>` : null}</td>
        <td class="number">${context ? count(context) : ""}</td>
        <td class="number">${state ? html`<button type="button" disabled=${isBusy} aria-label=${`${label} ${name}`} onClick=${() => machine.order(order, name)}>${isBusy ? "Working" : label}</button>` : html`<span class="hint">always loaded</span>`}</td>
      </tr>
    `;
  }
}

/** @extends {Component<MachineProps>} */
class Stored extends Component {
  render() {
    const { machine } = this.props;
    const { stored } = machine;
    return html`
      <h2>Models in the store</h2>
      ${stored === null
        ? html`<p class="hint">${absence(machine.refused.stored, "models")}</p>`
        : stored.length === 0
          ? html`<p class="hint">The store is empty. <code>inferd model pull SOURCE</code> on the machine fetches one.</p>`
          : html`
            <table>
              <thead><tr><th>Name</th><th>Kind</th><th>Licence</th><th class="number">Size</th></tr></thead>
              <tbody>
                ${stored.map(({ name, kind, license, files, is_complete: isComplete }) => html`
                  <tr key=${name}>
                    <td>${name}</td><td>${kind}</td><td>${license || "not stated"}</td>
                    <td class="number">${size(files.reduce((sum, file) => sum + file.n_bytes, 0))}${isComplete ? "" : ", incomplete"}</td>
                  </tr>
                `)}
              </tbody>
            </table>
          `}
    `;
  }
}

/**
 * @param {import("../service/failure.js").Failure | undefined} failure
 * @param {string} scope
 * @returns {string}
 */
function absence(failure, scope) {
  if (!failure) return "Looking.";
  if (failure.status === 403) return `These are shown to tokens with the scope ${scope}.`;
  return `${failure.message}.`.replace(/\.\.$/, ".");
}
