/** Reads the text format of metrics. */

const LINE = /^([a-zA-Z_:][\w:]*)(?:\{(.*)\})? ([^ ]+)(?: \d+)?$/;
const LABEL = /(\w+)="((?:[^"\\]|\\.)*)"/g;

/** @typedef {{ labels: Record<string, string>, value: number }} Sample */

/**
 * Return the samples of each metric.
 * @param {string} text
 * @returns {Map<string, Sample[]>}
 */
export function readMetrics(text) {
  /** @type {Map<string, Sample[]>} */
  const found = new Map();
  for (const line of text.split("\n")) {
    const match = line.startsWith("#") ? null : LINE.exec(line.trim());
    if (!match) continue;
    const [, name = "", labels = "", value = ""] = match;
    const samples = found.get(name) ?? [];
    samples.push({ labels: readLabels(labels), value: Number(value) });
    found.set(name, samples);
  }
  return found;
}

/** @param {string} text @returns {Record<string, string>} */
function readLabels(text) {
  /** @type {Record<string, string>} */
  const labels = {};
  for (const [, name = "", value = ""] of text.matchAll(LABEL)) {
    labels[name] = value.replace(/\\(.)/g, (_, character) => (character === "n" ? "\n" : character));
  }
  return labels;
}

/**
 * Return the sum of a metric's samples.
 * @param {Map<string, Sample[]>} metrics
 * @param {string} name
 * @returns {number}
 */
export function total(metrics, name) {
  return (metrics.get(name) ?? []).reduce((sum, { value }) => sum + value, 0);
}

/**
 * Return the sums of a metric's samples by one label, the greatest first.
 * @param {Map<string, Sample[]>} metrics
 * @param {string} name
 * @param {string} label
 * @returns {[string, number][]}
 */
export function totalsBy(metrics, name, label) {
  /** @type {Map<string, number>} */
  const sums = new Map();
  for (const { labels, value } of metrics.get(name) ?? []) {
    const key = labels[label] ?? "";
    sums.set(key, (sums.get(key) ?? 0) + value);
  }
  return [...sums].sort((a, b) => b[1] - a[1]);
}
