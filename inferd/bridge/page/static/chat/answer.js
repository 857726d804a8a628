/** An answer as its events come; each change makes a new object, so that views can compare. */

/**
 * @typedef {import("./branches.js").Message} Message
 * @typedef {{ event_type: string, queue_position?: number, estimate_s?: number | null,
 *   phase?: string, processed?: number | null, total?: number | null,
 * }} Waiting
 * @typedef {Waiting & { text?: string, tool_call?: any, context?: any, message?: any,
 *   error?: string, code?: string }} ChatEvent
 */

const ENDED = new Set(["complete", "aborted_by_worker", "cancelled", "timeout", "manual"]);

/** @param {Message} message @returns {boolean} */
export function hasEnded(message) {
  return ENDED.has(message.state);
}

/** @param {ChatEvent} event @returns {boolean} whether it is the last of its answer */
export function isLast({ event_type: type }) {
  return type === "message" || type === "error";
}

/**
 * Return what an answer is with one event more.
 * @param {Message} message
 * @param {ChatEvent} event
 * @returns {Message}
 */
export function withEvent(message, event) {
  switch (event.event_type) {
    case "token":
      return { ...message, state: "in_progress", content: message.content + (event.text ?? "") };
    case "thinking":
      return { ...message, state: "in_progress", thinking: (message.thinking ?? "") + (event.text ?? "") };
    case "tool_call":
      return { ...message, state: "in_progress", tool_calls: [...(message.tool_calls ?? []), event.tool_call] };
    case "tool_result":
      return { ...message, tool_calls: (message.tool_calls ?? []).map((call) => (call.id === event.tool_call.id ? event.tool_call : call)) };
    case "safe_prompt":
      return { ...message, safety_label: event.message?.safety_label, safety_rots: event.message?.safety_rots };
    case "context":
      return { ...message, context: event.context };
    case "message":
    case "error":
      return ended(message, event);
    default:
      return message;
  }
}

/** @param {Message} message @param {ChatEvent} event @returns {Message} */
function ended(message, event) {
  if (event.message && typeof event.message === "object") return event.message;
  const error = { code: event.code ?? "", message: event.error ?? "The answer has failed." };
  return { ...message, state: "aborted_by_worker", error };
}

/**
 * Return an answer as it is before the first event of a stream that tells all of it.
 * @param {Message} message
 * @returns {Message}
 */
export function emptied(message) {
  return { ...message, content: "", thinking: null, tool_calls: [] };
}
