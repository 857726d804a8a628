/** What the daemon's metrics and log say, as the status view shows it. */

/** Fields of a line of the log that have a place of their own. */
const HEAD = new Set(["t", "level", "component", "msg"]);

/**
 * @typedef {Map<string, import("./prometheus.js").Sample[]>} Metrics
 * @typedef {{ p50: number, p95: number }} Percentiles in milliseconds
 * @typedef {{ name: string, running: number, slots?: number, resident_bytes?: number,
 *   cache_bytes?: number }} ModelLoad
 * @typedef {{ running: number, waiting: number, paused: number, window_s: number, ended: number,
 *   failed: number, first_token_ms?: Percentiles, total_ms?: Percentiles, models: ModelLoad[],
 *   omitted_models?: number, memory_budget_bytes: number, memory_needed_bytes: number,
 *   memory_available_bytes: number }} Overview as `inferd top` is told it
 * @typedef {ModelLoad & { hits: number, misses: number, read: number, kept: number, deaths: number }} Worker
 * @typedef {{ overview: Overview, tokens: number, workers: Worker[] }} Daemon
 * @typedef {{ at: string, level: string, what: string, more: string }} LogLine
 */

/**
 * Return what the daemon does, and what it has counted since it began.
 * @param {Overview} overview
 * @param {Metrics} metrics
 * @returns {Daemon}
 */
export function readDaemon(overview, metrics) {
  return {
    overview,
    tokens: of(metrics, "inferd_tokens_total", { kind: "output" }),
    workers: overview.models.map((model) => ({
      ...model,
      hits: of(metrics, "inferd_cached_prompts_total", { backend: model.name, outcome: "hit" }),
      misses: of(metrics, "inferd_cached_prompts_total", { backend: model.name, outcome: "cache_miss" }),
      read: of(metrics, "inferd_tokens_total", { backend: model.name, kind: "input" }),
      kept: of(metrics, "inferd_tokens_total", { backend: model.name, kind: "cached" }),
      deaths: of(metrics, "inferd_worker_deaths_total", { backend: model.name }),
    })),
  };
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
