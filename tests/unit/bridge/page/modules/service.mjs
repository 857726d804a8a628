import assert from "node:assert/strict";
import { test } from "node:test";
import { ServiceClient } from "../../../../../inferd/bridge/page/static/service/client.js";
import { Failure, say, TakeError } from "../../../../../inferd/bridge/page/static/service/failure.js";
import { follow } from "../../../../../inferd/bridge/page/static/service/follow.js";
import { EventParser, MAX_EVENT } from "../../../../../inferd/bridge/page/static/service/sse.js";

const STREAM = "id: 1\ndata: a\ndata: b\n\n: quiet\n\r\nid: 2\r\nevent: x\r\ndata: é\r\n\r\n";

test("events are the same in whatever pieces they come", () => {
  const whole = new EventParser().add(STREAM);
  assert.deepEqual(whole, [
    { id: "1", event: "message", data: "a\nb" },
    { id: "2", event: "x", data: "é" },
  ]);
  const parser = new EventParser();
  assert.deepEqual([...STREAM].flatMap((character) => parser.add(character)), whole);
});

test("an event without an end is refused before it takes all memory", () => {
  const parser = new EventParser();
  assert.throws(() => parser.add(`data: ${"x".repeat(MAX_EVENT + 1)}`), RangeError);
});

/** Give answers one after another; note what was asked. */
function scripted(...answers) {
  const asked = [];
  const send = (path, request) => {
    asked.push({ path, ...request });
    const answer = answers.shift();
    return answer instanceof Error ? Promise.reject(answer) : Promise.resolve(answer);
  };
  return { client: new ServiceClient("inferd-t", send), asked };
}

const event = (id, data) => `id: ${id}\ndata: ${data}\n\n`;

/** Follow with no pauses; return what came. */
async function followed(client, options = {}) {
  const seen = [];
  const links = [];
  await follow(client, "/events", {
    signal: new AbortController().signal,
    onEvent: ({ data }) => { seen.push(data); return data === "end"; },
    onLink: (isUp) => links.push(isUp),
    pause: () => Promise.resolve(),
    ...options,
  });
  return { seen, links };
}

test("a lost stream goes on behind the last event that came", async () => {
  const { client, asked } = scripted(
    new Response(event("a1", "x") + event("a2", "y") + "id: a3\ndata: cut"),
    new TypeError("network"),
    new Response("", { status: 503 }),
    new Response(event("a3", "z") + event("end", "end")),
  );
  const { seen, links } = await followed(client, { lastId: "a0" });
  assert.deepEqual(seen, ["x", "y", "z", "end"]);
  assert.deepEqual(asked.map(({ headers }) => headers["last-event-id"]), ["a0", "a2", "a2", "a2"]);
  assert.deepEqual(links, [true, false, false, false, true]);
});

test("a stream with nothing to come, or that is refused, is followed no more", async () => {
  const ended = scripted(new Response(null, { status: 204 }));
  assert.deepEqual((await followed(ended.client)).seen, []);
  const refused = scripted(new Response('{"error":{"code":"chat_not_found","message":"no"}}', { status: 404 }));
  await assert.rejects(followed(refused.client), (error) => error instanceof Failure && error.code === "chat_not_found");
});

test("a stream that was left is not asked for again", async () => {
  const abort = new AbortController();
  const { client, asked } = scripted(new Response(event("1", "x")), new Response(event("2", "y")));
  await followed(client, { signal: abort.signal, onEvent: () => { abort.abort(); return false; } });
  assert.equal(asked.length, 1);
});

test("a request has the token and nothing that the browser keeps", async () => {
  const { client, asked } = scripted(new Response('{"a":1}'));
  assert.deepEqual(await client.json("/x", { body: { b: 2 } }), { a: 1 });
  const [{ method, headers, credentials, redirect, body }] = asked;
  assert.deepEqual([method, headers.authorization, credentials, redirect, body], ["POST", "Bearer inferd-t", "omit", "error", '{"b":2}']);
});

test("a failure has the code, the text and the wait of its answer, in the forms of all APIs", async () => {
  const forms = ['{"error":{"code":"queue_full","message":"full"}}', '{"detail":"full"}', '{"error":"full"}'];
  for (const form of forms) {
    const { client } = scripted(new Response(form, { status: 429, headers: { "retry-after": "3" } }));
    await assert.rejects(client.json("/x"), (error) => error.message === "full" && error.retryAfterS === 3);
  }
  const { client } = scripted(new Response("<html>", { status: 502 }));
  await assert.rejects(client.json("/x"), { message: "the service answered 502" });
});

test("what a chat is refused for has advice that helps", () => {
  const of = (status, code) => say(new Failure(status, code, "it was refused")).todo;
  assert.match(of(429, "chat_limit"), /^Delete/);
  assert.match(of(503, "chats_unavailable"), /chats/);
  assert.doesNotMatch(of(503, "chats_unavailable"), /daemon/);
  assert.match(of(501, "not_configured"), /operator/);
});

test("each failure says what to do", () => {
  for (const status of [0, 400, 401, 403, 404, 408, 409, 413, 415, 422, 429, 500, 502, 503, 507]) {
    const { what, todo } = say(new Failure(status, "", "it was refused", 4.2));
    assert.match(what, /^[A-Z].*\.$/);
    assert.match(todo, /^[A-Z].*\.$/);
  }
  assert.match(say(new Failure(429, "queue_full", "full", 4.2)).todo, /in 5 s/);
  assert.match(say(new Failure(400, "context_length_exceeded", "long")).todo, /new chat/);
  assert.equal(say(new TakeError("Too large.")).todo, "");
  assert.match(say(new Error("x")).what, /fault: x/);
});
