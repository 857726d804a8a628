import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { test } from "node:test";
import { BlockSplitter } from "../../../../../inferd/bridge/page/static/text/blocks.js";
import { visible } from "../../../../../inferd/bridge/page/static/text/controls.js";
import { openable } from "../../../../../inferd/bridge/page/static/text/links.js";
import { MAX_PARSED, renderBlock } from "../../../../../inferd/bridge/page/static/text/markdown.js";
import { all, text } from "./shown.mjs";

const TEXT = [
  "# Title", "", "A *text* of", "two lines.", "", "- one", "", "- two", "  more", "", "~~~js", "a", "", "b", "~~~",
  "After it.", "", "1. x", "", "   ```", "   - no item", "", "   ```", "", "    indented", "", "|a|b|", "|-|-|", "|1|2|", "", "End",
].join("\n");

const ELEMENTS = new Set([
  "p", "h3", "h4", "h5", "h6", "ul", "ol", "li", "blockquote", "hr", "br", "strong", "em", "del", "code", "pre", "figure",
  "figcaption", "span", "button", "div", "table", "thead", "tbody", "tr", "th", "td",
]);
const ATTRIBUTES = new Set([
  "children", "class", "type", "data-do", "data-address", "tabIndex", "role", "aria-label", "start",
]);

const TRAPS = JSON.parse(readFileSync(new URL("traps.json", import.meta.url), "utf8"));

test("a text that comes in any pieces is split alike, and nothing is lost", () => {
  const whole = new BlockSplitter();
  whole.add(TEXT);
  assert.equal(whole.finished.join("") + whole.rest, TEXT);
  assert.ok(whole.finished.includes("~~~js\na\n\nb\n~~~\n"));
  assert.ok(whole.finished.some((block) => block.includes("- one\n\n- two")));
  for (let size = 1; size < 12; size += 1) {
    const splitter = new BlockSplitter();
    for (let at = 0; at < TEXT.length; at += size) splitter.add(TEXT.slice(at, at + size));
    assert.deepEqual([splitter.finished, splitter.rest], [whole.finished, whole.rest]);
  }
});

test("a finished block does not change when more text comes", () => {
  const splitter = new BlockSplitter();
  let before = [];
  for (const character of TEXT) {
    splitter.add(character);
    assert.deepEqual(splitter.finished.slice(0, before.length), before);
    before = [...splitter.finished];
  }
});

test("no trap makes another element or attribute than those of texts", () => {
  for (const trap of TRAPS) {
    for (const node of all(renderBlock(trap))) {
      assert.ok(ELEMENTS.has(node.type), `${trap}: ${String(node.type)}`);
      for (const name of Object.keys(node.props)) assert.ok(ATTRIBUTES.has(name), `${trap}: ${name}`);
      if (node.props["data-address"]) assert.match(node.props["data-address"], /^https?:/);
    }
  }
});

test("markup is shown as it was written", () => {
  assert.match(text(renderBlock("a <b onclick=x>c</b> <script>d</script>")), /<b onclick=x>c<\/b> <script>d<\/script>/);
  assert.equal(text(renderBlock("1 &lt; 2 &amp; &#x41;")), "1 < 2 & A");
});

test("links name where they lead, and pictures are not fetched", () => {
  const nodes = all(renderBlock("[docs](https://example.org/a) ![cat](https://example.org/c.png)"));
  const [link] = nodes.filter(({ props }) => props["data-do"] === "ask-link");
  assert.equal(text(link), "docs (example.org)");
  assert.ok(!nodes.some(({ type, props }) => type === "img" || type === "a" || props.src || props.href));
});

test("tables, lists and code become elements", () => {
  const types = (markdown) => all(renderBlock(markdown)).map(({ type }) => type);
  assert.ok(types("|a|b|\n|-|-:|\n|1|2|").includes("td"));
  assert.ok(types("3. a\n4. b").includes("ol"));
  assert.equal(text(all(renderBlock("```py\n1 < 2\n")).find(({ type }) => type === "code")), "1 < 2\n");
  assert.ok(types("# a").includes("h3"));
});

test("a block that would take long is shown as it is", () => {
  for (const part of ["_a", ">", "[a](", "**a ", "`", "~", "<", "![]("]) {
    const long = part.repeat(30_000);
    assert.ok(all(renderBlock(long)).length <= 8, part);
  }
  assert.equal(text(renderBlock("word ".repeat(MAX_PARSED))).length, 5 * MAX_PARSED);
  assert.ok(all(renderBlock("> ".repeat(40) + "deep")).length < 40);
});

test("what hides or reorders text is made visible", () => {
  assert.equal(visible("a\u202eb\u0000c\u001b[31m\r\n\t"), "a[U+202E]b␀c␛[31m\n\t");
  assert.equal(visible("\u{e0041}x\u200b"), "[U+E0041]x[U+200B]");
  assert.equal(visible("é 👩‍💻 שלום"), "é 👩‍💻 שלום");
});

test("only addresses of the web may be opened", () => {
  assert.equal(openable("https://example.org/a b"), "https://example.org/a%20b");
  for (const address of ["javascript:1", "file:///etc/passwd", "//x", "x", "https://u:p@x.example", `https://x/${"a".repeat(3000)}`])
    assert.equal(openable(address), null, address);
});
