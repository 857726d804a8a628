/** Which messages of a long conversation are in the document. */

/** Messages at first: what is drawn in one frame of the screen without a pause that one sees. */
export const FIRST = 4;
/** Messages that come with each step upwards or downwards. */
export const STEP = 8;
/** Messages at most; beyond, those at the other end leave the document. */
export const MOST = 120;

/** @typedef {{ start: number, end: number }} Range */

/** @param {number} n of messages @returns {Range} the newest */
export function newest(n) {
  return { start: Math.max(0, n - FIRST), end: n };
}

/** @param {Range} range @returns {Range} with older messages */
export function older({ start, end }) {
  const next = Math.max(0, start - STEP);
  return { start: next, end: Math.min(end, next + MOST) };
}

/** @param {Range} range @param {number} n of messages @returns {Range} with newer messages */
export function newer({ start, end }, n) {
  const next = Math.min(n, end + STEP);
  return { start: Math.max(start, next - MOST), end: next };
}

/**
 * Return the range once the number of messages has changed.
 * @param {Range} range
 * @param {number} before
 * @param {number} n
 * @returns {Range}
 */
export function grown(range, before, n) {
  if (range.end !== before || n < before) return range.end > n ? newest(n) : range;
  return { start: Math.max(range.start, n - MOST), end: n };
}
