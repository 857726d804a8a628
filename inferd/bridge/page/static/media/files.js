/** Files that are dropped, pasted or chosen: texts become part of the message, media go with it. */

import { size } from "../chat/words.js";
import { TakeError } from "../service/failure.js";

/** Bytes of a text file: what some models read at once. */
export const MAX_TEXT_BYTES = 512 * 1024;
/** Files of one message. */
export const MAX_FILES = 8;
/** Bytes of a picture or recording, as the service takes them by default. */
export const MAX_MEDIUM_BYTES = 10 * 1024 * 1024;
/** Bytes that become base64 at once: more are too many arguments. */
const PIECE = 0x8000;
/** Types that are media by their name and texts by what they are. */
const TEXTS = new Set(["image/svg+xml"]);

/**
 * @typedef {"text" | "picture" | "sound"} Kind
 * @typedef {{ name: string, kind: Kind, text: string, data: string, n_bytes: number, shown: string }} Attached
 *   `text` of a text; else `data` in base64, and `shown` the address of a picture within the page
 */

/**
 * Read a file.
 * @param {File} file
 * @returns {Promise<Attached>}
 * @throws {TakeError} it is not taken; the text says why and what to do
 */
export async function attach(file) {
  const name = (file.name || "pasted").replace(/[\p{Cc}/\\]/gu, " ").slice(0, 200);
  const kind = kindOf(file.type);
  if (kind !== "text") return attachMedium(name, kind, file);
  if (file.size > MAX_TEXT_BYTES) throw new TakeError(`“${name}” has ${size(file.size)}; at most ${size(MAX_TEXT_BYTES)} of text are read. Send a part of it.`);
  return { name, kind, text: textOf(name, await file.arrayBuffer()), data: "", n_bytes: file.size, shown: "" };
}

/** @param {string} type of a file, as the browser names it @returns {Kind} */
export function kindOf(type) {
  if (TEXTS.has(type)) return "text";
  if (type.startsWith("image/")) return "picture";
  return type.startsWith("audio/") ? "sound" : "text";
}

/** @param {string} name @param {Kind} kind @param {File} file @returns {Promise<Attached>} */
async function attachMedium(name, kind, file) {
  if (file.size > MAX_MEDIUM_BYTES) throw new TakeError(`“${name}” has ${size(file.size)}; at most ${size(MAX_MEDIUM_BYTES)} are taken. Send a smaller version.`);
  const data = base64(new Uint8Array(await file.arrayBuffer()));
  return { name, kind, text: "", data, n_bytes: file.size, shown: kind === "picture" ? URL.createObjectURL(file) : "" };
}

/** @param {Uint8Array} bytes @returns {string} */
export function base64(bytes) {
  let text = "";
  for (let at = 0; at < bytes.length; at += PIECE) text += String.fromCharCode(...bytes.subarray(at, at + PIECE));
  return btoa(text);
}

/**
 * Refuse files that a model does not take, before they are sent.
 * @param {Attached[]} files
 * @param {{ name: string, images?: boolean | null, audio?: boolean | null } | undefined} model
 * @throws {TakeError}
 */
export function checkTaken(files, model) {
  for (const { name, kind } of files) {
    const isRefused = (kind === "picture" && model?.images === false) || (kind === "sound" && model?.audio === false);
    if (isRefused) throw new TakeError(`${model?.name} takes no ${kind === "sound" ? "recordings" : "pictures"}. Choose another model, or remove “${name}”.`);
  }
}

/**
 * Return the files that go beside the text of a message.
 * @param {Attached[]} files
 * @returns {{ name: string, data: string }[]}
 */
export function mediaOf(files) {
  return files.filter(({ kind }) => kind !== "text").map(({ name, data }) => ({ name, data }));
}

/** @param {Attached} file that is not shown any more */
export function forget({ shown }) {
  if (shown) URL.revokeObjectURL(shown);
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
  throw new TakeError(`“${name}” is neither a text nor a picture or recording. Send what it says as a text.`);
}

/**
 * Return a message with the texts of files behind it, each in a fence that it cannot close.
 * @param {string} content
 * @param {Attached[]} files
 * @returns {string}
 */
export function withTexts(content, files) {
  const texts = files.filter(({ kind }) => kind === "text").map(({ name, text }) => {
    const longest = Math.max(2, ...[...text.matchAll(/`{3,}/g)].map(([ticks]) => ticks.length));
    const fence = "`".repeat(longest + 1);
    return `${name.replace(/[\r\n`]/g, " ")}:\n${fence}\n${text.replace(/\n$/, "")}\n${fence}`;
  });
  return [content, ...texts].filter(Boolean).join("\n\n");
}
