/** What the daemon's metrics and log say, as the status view shows it. */

import { total, totalsBy } from "./prometheus.js";

/** Fields of a line of the log that have a place of their own. */
const HEAD = new Set(["t", "level", "component", "msg"]);

/**
 * @typedef {Map<string, import("./prometheus.js").Sample[]>} Metrics
 * @typedef {{ name: string, hits: number, misses: number, read: number, kept: number,
 *   savedBytes: number, deaths: number, deviceBytes: number, residentBytes: number }} Worker
 * @typedef {{ running: number, queued: number, paused: number, tokens: number,
 *   neededBytes: number, budgetBytes: number, workers: Worker[] }} Daemon
 * @typedef {{ at: string, level: string, what: string, more: string }} LogLine
 */

/**
 * Return what the metrics of the daemon say.
 * @param {Metrics} metrics
 * @returns {Daemon}
 */
export function readDaemon(metrics) {
  return {
    running: total(metrics, "inferd_active_requests"),
    queued: total(metrics, "inferd_queued_requests"),
    paused: total(metrics, "inferd_paused_requests"),
    tokens: of(metrics, "inferd_tokens_total", { kind: "output" }),
    neededBytes: total(metrics, "inferd_memory_needed_bytes"),
    budgetBytes: total(metrics, "inferd_memory_budget_bytes"),
    workers: namesOf(metrics).map((backend) => ({
      name: backend,
      hits: of(metrics, "inferd_cached_prompts_total", { backend, outcome: "hit" }),
      misses: of(metrics, "inferd_cached_prompts_total", { backend, outcome: "cache_miss" }),
      read: of(metrics, "inferd_tokens_total", { backend, kind: "input" }),
      kept: of(metrics, "inferd_tokens_total", { backend, kind: "cached" }),
      savedBytes: of(metrics, "inferd_saved_prompt_bytes", { backend }),
      deaths: of(metrics, "inferd_worker_deaths_total", { backend }),
      deviceBytes: of(metrics, "inferd_device_memory_bytes", { backend, kind: "total" }),
      residentBytes: of(metrics, "inferd_worker_resident_bytes", { backend }),
    })),
  };
}

/** @param {Metrics} metrics @returns {string[]} the backends that anything is counted of */
function namesOf(metrics) {
  const names = new Set();
  for (const name of ["inferd_tokens_total", "inferd_saved_prompt_bytes", "inferd_worker_deaths_total", "inferd_device_memory_bytes", "inferd_worker_resident_bytes"])
    for (const [backend] of totalsBy(metrics, name, "backend")) if (backend) names.add(backend);
  return [...names].sort();
}

/** @param {Metrics} metrics @param {string} name @param {Record<string, string>} labels */
function of(metrics, name, labels) {
  const wanted = Object.entries(labels);
  return (metrics.get(name) ?? [])
    .filter((sample) => wanted.every(([label, value]) => sample.labels[label] === value))
    .reduce((sum, { value }) => sum + value, 0);
}

/**
 * Read a line of the log.
 * @param {string} text an object of JSON; another text is shown as it is
 * @returns {LogLine}
 */
export function readLogLine(text) {
  try {
    const record = JSON.parse(text);
    const more = Object.entries(record)
      .filter(([name]) => !HEAD.has(name))
      .map(([name, value]) => `${name}=${typeof value === "string" ? value : JSON.stringify(value)}`);
    return {
      at: String(record.t ?? "").slice(11, 19),
      level: String(record.level ?? ""),
      what: String(record.msg ?? ""),
      more: more.join(" "),
    };
  } catch {
    return { at: "", level: "", what: text, more: "" };
  }
}
