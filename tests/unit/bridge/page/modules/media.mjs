import assert from "node:assert/strict";
import { test } from "node:test";
import { base64, checkTaken, kindOf, mediaOf, textOf, withTexts } from "../../../../../inferd/bridge/page/static/media/files.js";
import { pieces, spoken } from "../../../../../inferd/bridge/page/static/media/speaker.js";

const bytes = (...values) => new Uint8Array(values).buffer;

test("a file of text closes no fence of its own", () => {
  const file = { name: "a`\nb.md", kind: "text", text: "x\n```\n````\ny\n", n_bytes: 1 };
  assert.equal(withTexts("Look:", [file]), "Look:\n\na  b.md:\n`````\nx\n```\n````\ny\n`````");
  assert.equal(withTexts("only", []), "only");
});

test("a file that is no text is refused, with what to do", () => {
  assert.equal(textOf("a", bytes(0xc3, 0xa9)), "é");
  for (const content of [bytes(0xff), bytes(65, 0)]) assert.throws(() => textOf("a", content), /neither a text nor.*Send/);
});

test("a picture goes beside the text, in base64, and a drawing that is markup is a text", () => {
  assert.deepEqual(["image/png", "audio/ogg", "image/svg+xml", "", "video/mp4"].map(kindOf), ["picture", "sound", "text", "text", "text"]);
  const file = { name: "a.png", kind: "picture", text: "", data: base64(new Uint8Array(70000).fill(255)), n_bytes: 1 };
  assert.equal(atob(file.data).length, 70000);
  assert.equal(withTexts("Look", [file]), "Look");
  assert.deepEqual(mediaOf([file, { name: "b", kind: "text" }]), [{ name: "a.png", data: file.data }]);
});

test("a file that the model does not take is refused before it is sent", () => {
  const [picture, sound] = [{ name: "a", kind: "picture" }, { name: "b", kind: "sound" }];
  assert.throws(() => checkTaken([picture], { name: "m", images: false }), /m takes no pictures.*remove “a”/);
  assert.throws(() => checkTaken([sound], { name: "m", audio: false }), /no recordings/);
  for (const model of [undefined, { name: "m" }, { name: "m", images: true, audio: false }]) checkTaken([picture], model);
});

test("a text is read in pieces that end with a sentence", () => {
  assert.deepEqual(pieces("One two. Three four five.", 12), ["One two.", "Three four", "five."]);
  assert.deepEqual(pieces("x".repeat(25), 10).map((piece) => piece.length), [10, 10, 5]);
  assert.deepEqual(pieces("  "), []);
});

test("code, addresses and marks are not read", () => {
  assert.equal(spoken("**a** [b](https://x)\n```\ncode\n```\nc").replace(/\s+/g, " ").trim(), "a b (code) c");
  assert.match(spoken("```\nopen"), /code/);
});
