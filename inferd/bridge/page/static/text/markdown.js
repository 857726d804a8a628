/**
 * Turns Markdown into elements, and never into markup: a text is parsed into tokens, each of
 * which becomes one of the elements below. HTML in it stays text; links are buttons that ask
 * before they open; pictures are named and not fetched.
 */

import { h } from "../vendor/preact.mjs";
import { Marked } from "../vendor/marked.mjs";
import { visible } from "./controls.js";
import { openable } from "./links.js";

/** Characters of one block that is parsed; a longer one is shown as it is. */
export const MAX_PARSED = 16 * 1024;
/** Marks of emphasis, links and quotes in one block that is parsed: some take time by their square. */
export const MAX_MARKS = 1000;
/** Depth of quotes, lists and emphasis within each other; what is deeper is shown as it is. */
export const MAX_DEPTH = 12;

const parser = new Marked({ gfm: true });
const CODE = /^\s*(`{3,}(?!`)|~{3,}(?!~))([^\n`]*)\n([\s\S]*)$/;
const MARKS = /[*_[\]~>`<]/g;
const NAMED = { amp: "&", lt: "<", gt: ">", quot: '"', apos: "'", nbsp: "\u00a0" };
const ENTITY = /&(?:#(\d{1,7})|#x([0-9a-f]{1,6})|(amp|lt|gt|quot|apos|nbsp));/gi;

/**
 * @typedef {import("../vendor/preact.mjs").VNode} VNode
 * @typedef {VNode | string | null} Shown
 * @typedef {Record<string, any>} Token
 * @typedef {(token: Token, depth: number) => Shown | Shown[]} Element
 */

/**
 * Return the elements of one block.
 * @param {string} text
 * @returns {Shown | Shown[]}
 */
export function renderBlock(text) {
  const code = CODE.exec(text);
  if (code) return fenced(code);
  if (text.length > MAX_PARSED || countMarks(text) > MAX_MARKS) return plain(text);
  try {
    return elements(parser.lexer(text), 0);
  } catch {
    return plain(text); // it was too deep for the parser
  }
}

/** @param {string} text @returns {number} */
function countMarks(text) {
  return text.match(MARKS)?.length ?? 0;
}

/**
 * Return the element of code between fences, the last of which may be yet to come.
 * @param {RegExpExecArray} code
 * @returns {VNode}
 */
function fenced(code) {
  const [, fence = "", language = "", body = ""] = code;
  const end = new RegExp(`(^|\\n) {0,3}${fence[0]}{${fence.length},}\\s*$`);
  return codeBlock(language.trim(), body.replace(end, ""));
}

/** @param {string} text @returns {VNode} */
function plain(text) {
  return h("p", { class: "plain" }, visible(text));
}

/** @param {string} language @param {string} body @returns {VNode} */
function codeBlock(language, body) {
  const name = visible(language.split(/\s/)[0] ?? "").slice(0, 40);
  return h(
    "figure",
    { class: "code" },
    h(
      "figcaption",
      null,
      h("span", null, name || "text"),
      h("button", { type: "button", class: "quiet", "data-do": "copy-code" }, "Copy"),
    ),
    h("pre", { tabIndex: 0 }, h("code", null, visible(body))),
  );
}

/** @param {Token[] | undefined} tokens @param {number} depth @returns {Shown[]} */
function elements(tokens, depth) {
  return (tokens ?? []).flatMap((token) => element(token, depth + 1));
}

/** @param {Token} token @param {number} depth @returns {Shown | Shown[]} */
function element(token, depth) {
  const make = ELEMENTS[token.type];
  if (!make || depth > MAX_DEPTH) return visible(String(token.raw ?? ""));
  return make(token, depth);
}

/** @param {string} text @returns {string} */
function decoded(text) {
  return text.replace(ENTITY, (whole, decimal, hex, name) => {
    if (name) return NAMED[/** @type {keyof typeof NAMED} */ (name.toLowerCase())] ?? whole;
    const code = decimal ? Number(decimal) : Number.parseInt(hex, 16);
    return code > 0 && code <= 0x10ffff ? String.fromCodePoint(code) : whole;
  });
}

/** @param {string} name @returns {Element} */
function wrapped(name) {
  return (token, depth) => h(name, null, elements(token.tokens, depth));
}

/** @type {Element} */
function text(token, depth) {
  return token.tokens ? elements(token.tokens, depth) : visible(decoded(token.text));
}

/** @type {Element} */
function link(token, depth) {
  const address = openable(token.href);
  const label = elements(token.tokens, depth);
  if (!address) return token.autolink ? label : [...label, ` (${visible(token.href)})`];
  const host = new URL(address).host;
  const isNamed = token.text !== token.href;
  return h(
    "button",
    { type: "button", class: "link", "data-do": "ask-link", "data-address": address },
    label,
    isNamed ? h("span", { class: "host" }, ` (${visible(host)})`) : null,
  );
}

/** @type {Element} */
function image(token) {
  const name = visible(token.text) || "picture";
  return h("span", { class: "absent" }, `[${name}: not fetched from ${visible(token.href).slice(0, 200)}]`);
}

/** @type {Element} */
function list(token, depth) {
  const start = token.ordered && token.start !== 1 ? { start: token.start } : null;
  return h(token.ordered ? "ol" : "ul", start, token.items.map(
    (/** @type {Token} */ item) => listItem(item, depth),
  ));
}

/** @param {Token} item @param {number} depth @returns {VNode} */
function listItem(item, depth) {
  const tokens = item.tokens.filter((/** @type {Token} */ each) => each.type !== "checkbox");
  const mark = item.task ? `${item.checked ? "☑" : "☐"} ` : null;
  return h("li", item.task ? { class: "task" } : null, mark, elements(tokens, depth));
}

/** @type {Element} */
function table(token, depth) {
  const row = (/** @type {string} */ name) => (/** @type {Token} */ cell) =>
    h(name, cell.align ? { class: `to-${cell.align}` } : null, elements(cell.tokens, depth));
  return h(
    "div",
    { class: "table", tabIndex: 0, role: "region", "aria-label": "Table" },
    h(
      "table",
      null,
      h("thead", null, h("tr", null, token.header.map(row("th")))),
      h("tbody", null, token.rows.map((/** @type {Token[]} */ cells) => h("tr", null, cells.map(row("td"))))),
    ),
  );
}

/** @type {Record<string, Element>} */
const ELEMENTS = {
  space: () => null,
  def: (token) => visible(token.raw),
  hr: () => h("hr", null),
  br: () => h("br", null),
  html: (token) => visible(token.raw),
  escape: (token) => visible(token.text),
  codespan: (token) => h("code", null, visible(token.text)),
  code: (token) => codeBlock(token.lang ?? "", token.text),
  // an answer's own headings begin below those of the page
  heading: (token, depth) => h(`h${Math.min(6, token.depth + 2)}`, null, elements(token.tokens, depth)),
  paragraph: wrapped("p"),
  strong: wrapped("strong"),
  em: wrapped("em"),
  del: wrapped("del"),
  blockquote: wrapped("blockquote"),
  text,
  link,
  image,
  list,
  table,
};
