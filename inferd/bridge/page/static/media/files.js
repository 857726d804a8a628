/** Files that are dropped, pasted or chosen: texts become part of the message. */

import { size } from "../chat/words.js";
import { TakeError } from "../service/failure.js";

/** Bytes of a text file: what some models read at once. */
export const MAX_TEXT_BYTES = 512 * 1024;
/** Files of one message. */
export const MAX_FILES = 8;
/** @typedef {{ name: string, text: string, n_bytes: number }} Attached */

/**
 * Read a file.
 * @param {File} file
 * @returns {Promise<Attached>}
 * @throws {TakeError} it is not taken; the text says why and what to do
 */
export async function attach(file) {
  const name = file.name || "pasted";
  if (file.size > MAX_TEXT_BYTES) throw new TakeError(`“${name}” has ${size(file.size)}; at most ${size(MAX_TEXT_BYTES)} of text are read. Send a part of it.`);
  return { name, text: textOf(name, await file.arrayBuffer()), n_bytes: file.size };
}

/**
 * Return a file's text.
 * @param {string} name
 * @param {ArrayBuffer} bytes
 * @returns {string}
 */
export function textOf(name, bytes) {
  try {
    const text = new TextDecoder("utf-8", { fatal: true }).decode(bytes);
    if (!text.includes("\0")) return text;
  } catch {
    // told below
  }
  throw new TakeError(`“${name}” is not a text. Send what it says as a text; pictures are not part of chats.`);
}

/**
 * Return a message with the texts of files behind it, each in a fence that it cannot close.
 * @param {string} content
 * @param {Attached[]} files
 * @returns {string}
 */
export function withTexts(content, files) {
  const texts = files.map(({ name, text }) => {
    const longest = Math.max(2, ...[...text.matchAll(/`{3,}/g)].map(([ticks]) => ticks.length));
    const fence = "`".repeat(longest + 1);
    return `${name.replace(/[\r\n`]/g, " ")}:\n${fence}\n${text.replace(/\n$/, "")}\n${fence}`;
  });
  return [content, ...texts].filter(Boolean).join("\n\n");
}
