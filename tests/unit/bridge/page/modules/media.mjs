import assert from "node:assert/strict";
import { test } from "node:test";
import { base64, checkTaken, kindOf, mediaOf, textOf, withTexts } from "../../../../../inferd/bridge/page/static/media/files.js";
import { Phrases, wavOf } from "../../../../../inferd/bridge/page/static/media/phrases.js";
import { Dictation } from "../../../../../inferd/bridge/page/static/media/recorder.js";
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

const RATE = 1000;
const sound = (loud, seconds = 0.1) => new Float32Array(seconds * RATE).fill(loud);

test("a phrase ends with a pause, or after a time, and begins with a little silence", () => {
  const phrases = new Phrases(RATE);
  for (let n = 0; n < 50; n += 1) phrases.add(sound(0));
  assert.deepEqual([phrases.hasSpeech, phrases.seconds <= 0.4], [false, true]);
  for (let n = 0; n < 10; n += 1) phrases.add(sound(0.2));
  const open = phrases.take();
  assert.deepEqual([open.hasEnded, open.samples.length <= 1400, open.samples.at(-1) > 0.1], [false, true, true]);
  for (let n = 0; n < 8; n += 1) phrases.add(sound(0));
  const { hasEnded, samples } = phrases.take();
  assert.deepEqual([hasEnded, samples.length], [true, open.samples.length + 800]);
  assert.deepEqual([phrases.hasSpeech, phrases.seconds], [false, 0]);
  for (let n = 0; n < 250; n += 1) phrases.add(sound(0.2));
  assert.equal(phrases.take().hasEnded, true);
});

test("sound is written as WAV", () => {
  const view = new DataView(wavOf(new Float32Array([0, 1, -2]), 16000));
  const text = (at) => String.fromCharCode(...new Uint8Array(view.buffer, at, 4));
  assert.deepEqual([text(0), text(8), text(36)], ["RIFF", "WAVE", "data"]);
  assert.deepEqual([view.getUint32(4, true), view.getUint32(24, true), view.getUint32(40, true)], [42, 16000, 6]);
  assert.deepEqual([0, 1, 2].map((n) => view.getInt16(44 + 2 * n, true)), [0, 32767, -32767]);
});

test("what is said is shown while it is said, and what was written stays", async () => {
  const shown = [];
  const heard = [];
  const texts = ["one", "one two", "three"];
  const dictation = new Dictation(async ({ samples }) => (heard.push(samples.length), texts[heard.length - 1]), (text) => shown.push(text), assert.fail);
  const say = async (loud, n) => {
    for (let at = 0; at < n; at += 1) dictation.hear(new Float32Array(1600).fill(loud));
    dictation.look();
    dictation.look(); // while the first is being done
    await new Promise(setImmediate);
  };
  await say(0, 5);
  assert.deepEqual(shown, []);
  await say(0.2, 5);
  await say(0, 8);
  dictation.hear(new Float32Array(1600).fill(0.2));
  await dictation.stop();
  assert.deepEqual(shown, ["one", "one two", "one two three"]);
  assert.equal(heard.length, 3);
});

test("a dictation whose sound cannot be written down ends with the reason", async () => {
  const ends = [];
  const dictation = new Dictation(() => Promise.reject(new Error("no")), assert.fail, (error) => ends.push(error.message));
  dictation.hear(new Float32Array(1600).fill(0.2));
  dictation.look();
  await new Promise(setImmediate);
  assert.deepEqual(ends, ["no"]);
});
