/** What the page says of an answer: why it waits, how it ended, what it took. */

/**
 * @typedef {import("./branches.js").Message} Message
 * @typedef {import("./answer.js").Waiting} Waiting
 */

const COUNT = new Intl.NumberFormat("en");

/** @param {number} n @returns {string} */
export function count(n) {
  return COUNT.format(n);
}

/** @param {number} seconds @returns {string} */
export function duration(seconds) {
  if (seconds < 90) return `${Math.max(1, Math.round(seconds))} s`;
  const minutes = Math.round(seconds / 60);
  return minutes < 90 ? `${minutes} min` : `${Math.round(minutes / 60)} h`;
}

/** @param {number} bytes @returns {string} */
export function size(bytes) {
  const units = ["B", "kB", "MB", "GB", "TB"];
  let value = bytes;
  let unit = 0;
  for (; value >= 1000 && unit < units.length - 1; unit += 1) value /= 1000;
  return `${unit && value < 10 ? value.toFixed(1) : Math.round(value)} ${units[unit]}`;
}

/**
 * Say why an answer has not begun.
 * @param {Waiting | null} waiting
 * @returns {string}
 */
export function waitingFor(waiting) {
  if (!waiting) return "Waiting for the machine";
  const { phase, processed, total } = waiting;
  if (phase === "loading") return `Loading the model${share(processed, total)}`;
  if (phase === "prefill") return `Reading the conversation${share(processed, total)}`;
  return queued(waiting);
}

/** @param {Waiting} waiting @returns {string} */
function queued({ queue_position: position = 0, estimate_s: estimate }) {
  if (position <= 0) return "Starting";
  const about = estimate ? `, about ${duration(estimate)}` : "";
  return `In the queue: place ${count(position)}${about}`;
}

/** @param {number | null | undefined} done @param {number | null | undefined} all */
function share(done, all) {
  if (!all || done == null) return "";
  return `: ${Math.min(100, Math.floor((100 * done) / all))} %`;
}

/** @type {Record<string, string>} */
const ENDINGS = {
  cancelled: "Stopped.",
  timeout: "The answer took longer than this machine allows.",
  aborted_by_worker: "The answer broke off; what had been written is kept.",
};

/** @type {Record<string, string>} */
const REASONS = {
  max_tokens: "The answer reached the greatest length set for it.",
  length: "The answer reached the greatest length set for it.",
  context_full: "The context of the model is full.",
};

/**
 * Say how an answer ended, if that was not by its own end.
 * @param {Message} message
 * @returns {string}
 */
export function ending(message) {
  const { state, error, finish_reason: reason } = message;
  if (state === "aborted_by_worker" && error) return error.message;
  return ENDINGS[state] ?? REASONS[reason ?? ""] ?? "";
}

/**
 * Say what an answer took.
 * @param {Message} message
 * @returns {string}
 */
export function took({ usage }) {
  if (!usage) return "";
  const rate = usage.tokens_per_second;
  const speed = rate ? `${rate < 10 ? rate.toFixed(1) : Math.round(rate)} tokens/s` : "";
  return [`${count(usage.output_tokens)} tokens`, speed].filter(Boolean).join(", ");
}

/**
 * Return how full a model's context is after an answer.
 * @param {Message[]} path
 * @param {number | null | undefined} contextSize
 * @returns {{ used: number, size: number, share: number } | null}
 */
export function contextUse(path, contextSize) {
  const last = path.findLast((message) => message.usage);
  if (!last?.usage || !contextSize) return null;
  const used = last.usage.input_tokens + last.usage.output_tokens;
  return { used, size: contextSize, share: Math.min(1, used / contextSize) };
}

/**
 * Say how much of a conversation a model was not shown.
 * @param {import("./branches.js").LeftOut} context
 * @returns {string}
 */
export function leftOut({ n_left_out: n, summary }) {
  const messages = `${count(n)} older ${n === 1 ? "message" : "messages"}`;
  return summary
    ? `The model was shown a summary in place of ${messages}.`
    : `The model was not shown ${messages}: its context was full.`;
}
