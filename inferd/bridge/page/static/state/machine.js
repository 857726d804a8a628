/** What the bridge tells of itself, of the daemon and of the store, read again and again. */

import { readDaemon, readLogLine } from "../status/daemon.js";
import { readMetrics, total, totalsBy } from "../status/prometheus.js";
import { Failure } from "../service/failure.js";
import { Store } from "./store.js";

/** Seconds between two looks. */
export const LOOK_S = 2;
/** Refusals that do not change while the page is open: of the scope, of what is configured. */
const LASTING = new Set([403, 404, 501]);
/** Looks that are kept for the plots: four minutes. */
export const KEPT = 120;

/**
 * @typedef {{ name: string, ready: boolean, aliases?: string[], state?: string | null,
 *   unavailable?: string | null, n_slots?: number | null, n_ctx?: number | null }} Backend
 * @typedef {{ phase: string, age_ms: number, output_tokens: number, backend?: string | null,
 *   model?: string | null, position?: number | null, principal?: string | null, uid?: number }} Asked
 * @typedef {{ name: string, scopes: string[], requests: Asked[], requests_at_once: number,
 *   tokens: number, all_tokens: number }} Own
 * @typedef {{ name: string, kind: string, license: string, is_complete: boolean,
 *   files: { n_bytes: number }[] }} StoredModel
 * @typedef {{ at: number, running: number, connections: number, tokens: number, requests: number }} Look
 * @typedef {{ at: number, running: number, waiting: number, tokens: number }} DaemonLook
 */

export class Machine extends Store {
  /** @type {boolean | null} */
  isReady = null;
  /** @type {Look[]} */
  looks = [];
  /** @type {[string, number][]} */
  shares = [];
  /** @type {[string, number][]} */
  failures = [];
  /** @type {Backend[] | null} */
  backends = null;
  /** @type {StoredModel[] | null} */
  stored = null;
  /** @type {Own | null} what concerns who has signed in */
  own = null;
  /** @type {Asked[] | null} of all users */
  requests = null;
  nOmitted = 0;
  /** @type {import("../status/daemon.js").Daemon | null} */
  daemon = null;
  /** @type {DaemonLook[]} */
  daemonLooks = [];
  /** @type {import("../status/daemon.js").LogLine[] | null} */
  log = null;
  isPaused = false;
  /** @type {Record<string, import("../service/failure.js").Failure>} */
  refused = {};
  /** @type {Set<string>} */
  busy = new Set();
  /** @type {ReturnType<typeof setInterval> | null} */
  #timer = null;
  #isLooking = false;

  /**
   * @param {import("./session.js").Session} session
   * @param {import("./notices.js").Notices} notices
   */
  constructor(session, notices) {
    super();
    this.session = session;
    this.notices = notices;
  }

  /** Look now, and then again and again. */
  start() {
    this.stop();
    void this.look();
    void this.#list("stored", "/admin/models", "models");
    this.#timer = setInterval(() => {
      if (!document.hidden && !this.isPaused) void this.look();
    }, LOOK_S * 1000);
  }

  /** Look no more. */
  stop() {
    if (this.#timer !== null) clearInterval(this.#timer);
    this.#timer = null;
  }

  /** Leave what is shown as it is, or go on. */
  togglePause() {
    this.isPaused = !this.isPaused;
    if (!this.isPaused) void this.look();
    this.changed();
  }

  /** Whether what is told to admins alone may be asked for. */
  get isAdmin() {
    return this.own?.scopes.includes("admin") ?? false;
  }

  /** Read what may have changed. */
  async look() {
    if (this.#isLooking) return;
    this.#isLooking = true;
    await Promise.all([this.#readMetrics(), this.#read("own", "/status", (own) => (this.own = own))]);
    if (this.isAdmin) {
      await Promise.all([
        this.#list("backends", "/admin/backends", "backends"),
        this.#read("daemon", "/admin/machine", (told) => this.#takeDaemon(told)),
        this.#read("log", "/admin/log", ({ lines }) => (this.log = lines.map(readLogLine))),
      ]);
    }
    const isTold = this.isAdmin && this.daemon !== null && !this.refused.daemon;
    if (isTold) this.isReady = true; // else a look is a connection, and a line of the log
    else await this.#readReady();
    this.#isLooking = false;
    this.changed();
  }

  /**
   * Load or unload a backend's model.
   * @param {"load" | "unload"} order
   * @param {string} model
   */
  async order(order, model) {
    this.busy.add(model);
    this.changed();
    await this.notices.trying(() => this.session.client.json(`/admin/${order}`, { body: { model } }));
    this.busy.delete(model);
    await this.look();
  }

  async #readReady() {
    try {
      await this.session.client.json("/ready");
      this.isReady = true;
    } catch {
      this.isReady = false;
    }
  }

  async #readMetrics() {
    try {
      const response = await this.session.client.ask("/metrics");
      this.#take(readMetrics(await response.text()));
      delete this.refused.metrics;
    } catch (error) {
      this.#refuse("metrics", error);
    }
  }

  /** @param {Map<string, import("../status/prometheus.js").Sample[]>} metrics */
  #take(metrics) {
    const look = {
      at: Date.now() / 1000,
      running: total(metrics, "inferd_bridge_running"),
      connections: total(metrics, "inferd_bridge_connections"),
      tokens: total(metrics, "inferd_bridge_tokens_total"),
      requests: total(metrics, "inferd_bridge_requests_total"),
    };
    this.looks = [...this.looks, look].slice(-KEPT);
    this.shares = totalsBy(metrics, "inferd_bridge_principal_tokens_total", "principal");
    this.failures = totalsBy(metrics, "inferd_bridge_failures_total", "code");
  }

  /** @param {{ requests: Asked[], n_omitted?: number, overview: import("../status/daemon.js").Overview, metrics: string }} told */
  #takeDaemon(told) {
    this.requests = told.requests;
    this.nOmitted = told.n_omitted ?? 0;
    this.daemon = readDaemon(told.overview, readMetrics(told.metrics));
    const { running, waiting } = told.overview;
    const growing = told.requests.reduce((sum, { output_tokens: n }) => sum + n, 0); // counted once they end
    const tokens = this.daemon.tokens + growing;
    this.daemonLooks = [...this.daemonLooks, { at: Date.now() / 1000, running, waiting, tokens }].slice(-KEPT);
  }

  /** @param {"backends" | "stored"} field @param {string} path @param {string} key */
  async #list(field, path, key) {
    await this.#read(field, path, (found) => (this[field] = found[key]));
    this.changed();
  }

  /** @param {string} field @param {string} path @param {(found: any) => void} take */
  async #read(field, path, take) {
    if (LASTING.has(this.refused[field]?.status ?? 0)) return;
    try {
      take(await this.session.client.json(path));
      delete this.refused[field];
    } catch (error) {
      this.#refuse(field, error);
    }
  }

  /** @param {string} field @param {unknown} error */
  #refuse(field, error) {
    if (this.session.isRefused(error)) this.stop();
    else if (error instanceof Failure) this.refused[field] = error;
  }
}
