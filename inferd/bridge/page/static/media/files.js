/** Files that are dropped, pasted or chosen: texts become part of the message, pictures go with it. */

import { size } from "../chat/words.js";
import { TakeError } from "../service/failure.js";

/** Bytes of a text file: what some models read at once. */
export const MAX_TEXT_BYTES = 512 * 1024;
/** Bytes of a picture as it is sent. */
export const MAX_IMAGE_BYTES = 4 * 1024 * 1024;
/** Files of one message. */
export const MAX_FILES = 8;
/** Pixels of a picture's longer side: models see less. */
const MAX_SIDE = 2048;
const IMAGE_TYPES = new Set(["image/png", "image/jpeg", "image/webp", "image/gif"]);
const KEPT_TYPES = new Set(["image/png", "image/jpeg"]);

/** @typedef {{ name: string, kind: "text" | "image", text: string, n_bytes: number }} Attached `text` of an image is a data URL */

/**
 * Read a file.
 * @param {File} file
 * @param {boolean} hasImages whether the model sees pictures
 * @returns {Promise<Attached>}
 * @throws {TakeError} it is not taken; the text says why and what to do
 */
export async function attach(file, hasImages) {
  const name = file.name || "pasted";
  if (IMAGE_TYPES.has(file.type)) {
    if (!hasImages) throw new TakeError(`“${name}” is a picture, which this model does not see. Choose a model that does.`);
    const image = await smaller(file);
    if (image.size > MAX_IMAGE_BYTES) throw new TakeError(`“${name}” has ${size(image.size)}; at most ${size(MAX_IMAGE_BYTES)} are sent. Make it smaller.`);
    return { name, kind: "image", text: await dataUrl(image), n_bytes: image.size };
  }
  if (file.size > MAX_TEXT_BYTES) throw new TakeError(`“${name}” has ${size(file.size)}; at most ${size(MAX_TEXT_BYTES)} of text are read. Send a part of it.`);
  return { name, kind: "text", text: textOf(name, await file.arrayBuffer()), n_bytes: file.size };
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
  throw new TakeError(`“${name}” is not a text or a picture. Send its text, or a picture of it.`);
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

/** @param {File} file @returns {Promise<Blob>} a picture that is no larger than models see */
async function smaller(file) {
  const bitmap = await createImageBitmap(file).catch(() => {
    throw new TakeError(`“${file.name || "pasted"}” cannot be read as a picture. Save it as PNG or JPEG.`);
  });
  const scale = Math.min(1, MAX_SIDE / Math.max(bitmap.width, bitmap.height));
  if (scale === 1 && KEPT_TYPES.has(file.type) && file.size <= MAX_IMAGE_BYTES) return file;
  const canvas = new OffscreenCanvas(Math.ceil(bitmap.width * scale), Math.ceil(bitmap.height * scale));
  canvas.getContext("2d")?.drawImage(bitmap, 0, 0, canvas.width, canvas.height);
  return canvas.convertToBlob({ type: "image/jpeg", quality: 0.9 });
}

/** @param {Blob} blob @returns {Promise<string>} */
function dataUrl(blob) {
  return new Promise((resolve, reject) => {
    const reader = new FileReader();
    reader.onload = () => resolve(String(reader.result));
    reader.onerror = () => reject(reader.error);
    reader.readAsDataURL(blob);
  });
}
