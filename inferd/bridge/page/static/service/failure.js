/** What went wrong, in words that say what to do. */

/** A request that the service refused, or that did not reach it. */
export class Failure extends Error {
  /**
   * @param {number} status of HTTP; 0 where there was no answer
   * @param {string} code of the error, as the service names it
   * @param {string} message of the service
   * @param {number | null} retryAfterS
   */
  constructor(status, code, message, retryAfterS = null) {
    super(message);
    this.status = status;
    this.code = code;
    this.retryAfterS = retryAfterS;
  }
}

/** A file or a voice that the page does not take; the text says why and what to do. */
export class TakeError extends Error {}

/** @typedef {{ what: string, todo: string }} Said */

/** @type {Record<string, string>} */
const BY_CODE = {
  model_not_found: "Choose another model above the text field.",
  context_overflow:
    "Start a new chat, or let this chat leave out its oldest messages: Settings of this chat.",
  context_length_exceeded:
    "Start a new chat, or let this chat leave out its oldest messages: Settings of this chat.",
  content_refused: "Say it in another way, or ask the operator of this machine what the filter is for.",
  filter_failed: "Tell the operator of this machine. Nothing is answered until the filter works.",
  chat_limit: "Delete chats or files that you do not need, or begin another chat; the text says what is full.",
  chats_unavailable: "The chats cannot be reached now. Try again in a moment, or tell the operator of this machine what the text says.",
  not_configured: "This is switched off here. Ask the operator of this machine for it.",
  insufficient_quota: "Your share is used up for now. Ask again tomorrow, or ask the operator of this machine for more.",
  too_many_failed_tokens: "Wait a minute, then sign in with a token that is valid.",
  cancelled: "It was ended on the machine. Try again in a moment.",
  deadline_exceeded: "It took too long. Ask for less at once, or choose a faster model.",
  queue_full: "The machine is busy. Try again in a moment.",
  backend_unavailable: "The model is not loaded. Try again in a moment, or choose another one.",
};

/** @type {Record<number, string>} */
const BY_STATUS = {
  0: "Check the network, and that the bridge still runs. This page tries again by itself.",
  401: "Sign in again with a token that is valid.",
  403: "Your token does not allow this. Ask the operator of this machine for the scope.",
  404: "It may have been deleted on another device. Go back to the list of chats.",
  408: "The connection is slow. Try again.",
  409: "Something else changed it first. Reload the page.",
  413: "Make it smaller: a shorter text, a smaller file.",
  415: "This kind of file is not read here. Send its text.",
  422: "Change what the message names, then try again.",
  429: "Wait a moment, then try again.",
  500: "This is a fault of the service. Its log has the details; try again.",
  503: "The daemon does not answer. Try again in a moment; it may be starting.",
  507: "The disk of the machine is full. Delete old chats, or ask the operator of the machine.",
};

/**
 * Say what went wrong and what to do.
 * @param {unknown} error
 * @returns {Said}
 */
export function say(error) {
  if (error instanceof TakeError) return { what: error.message, todo: "" };
  if (!(error instanceof Failure)) {
    const what = error instanceof Error ? error.message : String(error);
    return { what: `This page met a fault: ${what}`, todo: "Reload the page." };
  }
  const what = error.status === 0 ? "The bridge was not reached." : sentence(error.message);
  return { what, todo: advice(error) };
}

/** @param {Failure} error @returns {string} */
function advice(error) {
  const wait = error.retryAfterS ? ` It may work in ${Math.ceil(error.retryAfterS)} s.` : "";
  const known = BY_CODE[error.code] ?? BY_STATUS[error.status];
  if (known) return known + wait;
  if (error.status >= 500) return `${BY_STATUS[500]}${wait}`;
  return `Change the request, then try again.${wait}`;
}

/** @param {string} text @returns {string} */
function sentence(text) {
  const trimmed = text.trim() || "The request failed";
  const first = trimmed.slice(0, 1).toUpperCase() + trimmed.slice(1);
  return /[.!?]$/.test(first) ? first : `${first}.`;
}
