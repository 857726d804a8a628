/**
 * Makes characters visible that would hide or reorder what is read: control characters,
 * marks of direction, and the invisible copies of ASCII in the block of tags.
 */

// eslint-disable-next-line no-control-regex
const HIDDEN = /[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u061c\u200b\u200e\u200f\u202a-\u202e\u2060-\u2069\ufeff\u{e0000}-\u{e007f}]/gu;
const CONTROL_PICTURES = 0x2400;

/** @param {string} character @returns {string} */
function picture(character) {
  const code = character.codePointAt(0) ?? 0;
  if (code === 0x0d) return "";
  if (code < 0x20) return String.fromCodePoint(CONTROL_PICTURES + code);
  return `[U+${code.toString(16).toUpperCase().padStart(4, "0")}]`;
}

/**
 * Return a text in which nothing is hidden.
 * @param {string} text
 * @returns {string}
 */
export function visible(text) {
  return text.replace(HIDDEN, picture);
}
