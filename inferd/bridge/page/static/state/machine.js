/** What the bridge tells of itself, of the daemon and of the store, read again and again. */

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
 *   unavailable?: string | null }} Backend
 * @typedef {{ name: string, kind: string, license: string, is_complete: boolean,
 *   files: { n_bytes: number }[] }} StoredModel
 * @typedef {{ at: number, running: number, connections: number, tokens: number, requests: number }} Look
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
      if (!document.hidden) void this.look();
    }, LOOK_S * 1000);
  }

  /** Look no more. */
  stop() {
    if (this.#timer !== null) clearInterval(this.#timer);
    this.#timer = null;
  }

  /** Read what may have changed. */
  async look() {
    if (this.#isLooking) return;
    this.#isLooking = true;
    await Promise.all([
      this.#readReady(),
      this.#readMetrics(),
      this.#list("backends", "/admin/backends", "backends"),
    ]);
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

  /** @param {"backends" | "stored"} field @param {string} path @param {string} key */
  async #list(field, path, key) {
    if (LASTING.has(this.refused[field]?.status ?? 0)) return;
    try {
      const found = await this.session.client.json(path);
      this[field] = found[key];
      delete this.refused[field];
    } catch (error) {
      this.#refuse(field, error);
    }
    this.changed();
  }

  /** @param {string} field @param {unknown} error */
  #refuse(field, error) {
    if (this.session.isRefused(error)) this.stop();
    else if (error instanceof Failure) this.refused[field] = error;
  }
}
