import assert from "node:assert/strict";
import { test } from "node:test";
import { emptied, hasEnded, isLast, withEvent } from "../../../../../inferd/bridge/page/static/chat/answer.js";
import { Branches } from "../../../../../inferd/bridge/page/static/chat/branches.js";
import { grown, MOST, newer, newest, older } from "../../../../../inferd/bridge/page/static/chat/window.js";
import { contextUse, duration, ending, leftOut, size, took, waitingFor } from "../../../../../inferd/bridge/page/static/chat/words.js";

const message = (id, parent, fields = {}) => ({ id, parent_id: parent, role: "prompter", content: id, state: "manual", ...fields });
const ids = (path) => path.map(({ id }) => id).join("");

test("a branch goes through the chosen message, and by the newest version where none is chosen", () => {
  const tree = new Branches([message("a", null), message("b", "a"), message("c", "b"), message("d", "a"), message("e", "d"), message("f", null)]);
  assert.equal(ids(tree.path("b")), "abc");
  assert.equal(ids(tree.path("a")), "ade");
  assert.equal(ids(tree.path(null)), "f");
  assert.equal(ids(tree.path("gone")), "f");
  assert.equal(ids(tree.versions(message("d", "a"))), "bd");
  assert.equal(ids(new Branches([]).path(null)), "");
});

test("messages that name each other as parents end nowhere, but are shown", () => {
  assert.equal(ids(new Branches([message("a", "b"), message("b", "a")]).path("a")), "ba");
});

test("a long chain is walked without a recursion", () => {
  const chain = Array.from({ length: 20_000 }, (_, n) => message(`m${n}`, n ? `m${n - 1}` : null));
  assert.equal(new Branches(chain).path("m0").length, 20_000);
});

test("events make an answer, each a new object", () => {
  const start = message("x", "p", { role: "assistant", state: "pending", content: "" });
  const steps = [
    { event_type: "pending", queue_position: 2 }, { event_type: "thinking", text: "hm" }, { event_type: "token", text: "a" },
    { event_type: "token", text: "b" }, { event_type: "tool_call", tool_call: { id: "1", name: "t", input: {} } },
    { event_type: "context", context: { n_left_out: 2 } }, { event_type: "unknown" },
  ];
  const made = steps.reduce(withEvent, start);
  assert.deepEqual([made.content, made.thinking, made.tool_calls.length, made.context.n_left_out], ["ab", "hm", 1, 2]);
  assert.equal(start.content, "");
  assert.deepEqual([emptied(made).content, hasEnded(made)], ["", false]);
  const done = { event_type: "message", message: { ...made, state: "complete" } };
  assert.ok(isLast(done) && hasEnded(withEvent(made, done)));
  const failed = withEvent(made, { event_type: "error", error: "gone", code: "x" });
  assert.deepEqual([failed.state, failed.content, ending(failed)], ["aborted_by_worker", "ab", "gone"]);
});

test("a wait is told by its phase, place and estimate", () => {
  const at = (fields) => waitingFor({ event_type: "pending", ...fields });
  assert.equal(at({ phase: "queued", queue_position: 2, estimate_s: 4.5 }), "In the queue: place 2, about 5 s");
  assert.equal(at({ phase: "queued", queue_position: 0 }), "Starting");
  assert.equal(at({ phase: "loading", processed: 1, total: 3 }), "Loading the model: 33 %");
  assert.equal(at({ phase: "prefill", processed: null, total: null }), "Reading the conversation");
  assert.equal(waitingFor(null), "Waiting for the machine");
});

test("an answer says what it took and how it ended", () => {
  const usage = { input_tokens: 600, output_tokens: 1400, tokens_per_second: 41.3 };
  assert.equal(took({ usage }), "1,400 tokens, 41 tokens/s");
  assert.deepEqual(contextUse([message("a", null, { usage })], 4000), { used: 2000, size: 4000, share: 0.5 });
  assert.equal(contextUse([message("a", null)], 4000), null);
  assert.equal(ending(message("a", null, { state: "complete", finish_reason: "end_turn" })), "");
  assert.match(ending(message("a", null, { state: "complete", finish_reason: "max_tokens" })), /greatest length/);
  assert.match(ending(message("a", null, { state: "cancelled" })), /Stopped/);
  assert.match(leftOut({ n_left_out: 1 }), /not shown 1 older message:/);
  assert.match(leftOut({ n_left_out: 4, summary: "s" }), /summary in place of 4 older messages/);
  assert.deepEqual([duration(0.2), duration(100), duration(9000)], ["1 s", "2 min", "3 h"]);
  assert.deepEqual([size(12), size(1500), size(253e6)], ["12 B", "1.5 kB", "253 MB"]);
});

test("however far somebody scrolls, the document has a bounded number of messages", () => {
  let range = newest(2000);
  for (let n = 0; n < 600; n += 1) {
    range = older(range);
    assert.ok(range.end - range.start <= MOST && range.start >= 0);
  }
  assert.equal(range.start, 0);
  for (let n = 0; n < 600; n += 1) range = newer(range, 2000);
  assert.equal(range.end, 2000);
  assert.deepEqual(grown(range, 2000, 2001), { start: 2001 - MOST, end: 2001 });
  assert.deepEqual(grown({ start: 0, end: 50 }, 2000, 2001), { start: 0, end: 50 });
  assert.deepEqual(grown({ start: 0, end: 50 }, 50, 3), newest(3));
});
