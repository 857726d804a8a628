/** What a tab has read of answers that are being written, kept for its next load. */

const KEY = "inferd.read";
/** Characters that are kept: browsers keep some five million for a page. */
const MOST = 1_000_000;

/**
 * @typedef {{ content: string, thinking: string | null, calls: import("../chat/branches.js").ToolCall[],
 *   lastId: string }} Read
 */

/**
 * Keep what has been read of each answer.
 * @param {Record<string, Read>} read by the id of the message
 */
export function keepRead(read) {
  const text = JSON.stringify(read);
  if (text.length <= MOST) sessionStorage.setItem(KEY, text);
}

/** @returns {Record<string, Read>} what was kept, once */
export function takeRead() {
  const text = sessionStorage.getItem(KEY);
  sessionStorage.removeItem(KEY);
  return text ? JSON.parse(text) : {};
}
