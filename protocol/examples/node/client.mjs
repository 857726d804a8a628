// A client of inferd in JavaScript: stream an answer, embed a text, order documents.
//
//     node client.mjs [DIRECTORY]
//
// Node's own modules are enough.

import { existsSync, lstatSync } from "node:fs";
import { createConnection } from "node:net";
import { userInfo } from "node:os";
import { dirname, join } from "node:path";
import process from "node:process";

const TIMEOUT_S = 60; // of silence, before we give up
const TERMINAL = new Set(["done", "embeddings", "rerank"]);

/** Refuse a directory in which others could put a socket: Node cannot ask who listens. */
function refuseForeign(directory) {
  const info = lstatSync(directory);
  const named = (process.env.INFERD_TRUST_UID ?? "").split(",");
  const isTrusted = [0, process.geteuid()].includes(info.uid) || named.includes(String(info.uid));
  if (!info.isDirectory() || info.mode & 0o002 || !isTrusted) {
    throw new Error(`${directory} is not safe; to trust its owner: INFERD_TRUST_UID=${info.uid}`);
  }
}

/** Send one request; give the frames of its answer, the last one ends it. */
async function* frames(path, request) {
  refuseForeign(dirname(path));
  const socket = createConnection(path);
  socket.setEncoding("utf8"); // puts together characters that two reads have cut
  socket.setTimeout(TIMEOUT_S * 1000, () => socket.destroy(new Error("nothing came in time")));
  socket.write(JSON.stringify(request) + "\n");
  let rest = "";
  try {
    for await (const chunk of socket) {
      // Not with readline: it also ends lines at U+2028, which JSON may hold as it is.
      const lines = (rest + chunk).split("\n");
      rest = lines.pop();
      for (const line of lines) {
        const frame = JSON.parse(line); // integers over 2^53, as in timing, are rounded
        if (frame.type === "error") throw new Error(`${frame.code}: ${frame.message}`);
        yield frame;
        if (TERMINAL.has(frame.type)) return;
      }
    }
  } finally {
    socket.destroy();
  }
  throw new Error("the connection ended before the answer did");
}

async function generate(path) {
  const content = [{ type: "text", text: "What is the capital of France?" }];
  const request = { id: "1", messages: [{ role: "user", content }], max_tokens: 200 };
  for await (const frame of frames(path, request)) {
    if (frame.type === "frame" && frame.block.type === "text") {
      process.stdout.write(frame.block.delta);
    }
  }
  process.stdout.write("\n");
}

async function embed(path) {
  const request = { id: "2", input: ["Paris is the capital of France"] };
  for await (const { embeddings, dimensions } of frames(path, request)) {
    const first = embeddings[0].slice(0, 3).map((number) => number.toFixed(4));
    console.log(`embedding: ${dimensions} numbers, first ${first.join(" ")}`);
  }
}

async function rerank(path) {
  const documents = [
    "Berlin is the capital of Germany",
    "Paris is the capital of France",
    "Bread is baked",
  ];
  const request = { id: "3", query: "capital of France", documents };
  for await (const { results } of frames(path, request)) {
    console.log("ranking:", ...results.map((result) => result.index));
  }
}

/** List where a daemon's sockets may be, in order. */
function directories() {
  const { XDG_RUNTIME_DIR, HOME } = process.env;
  if (XDG_RUNTIME_DIR) return [join(XDG_RUNTIME_DIR, "inferd"), "/run/inferd"];
  if (HOME) return [join(HOME, ".inferd", "run"), "/run/inferd"];
  return [`/tmp/inferd-${userInfo().uid}`, "/run/inferd"];
}

async function main() {
  const places = process.argv.length > 2 ? [process.argv[2]] : directories();
  const surfaces = { "infer.v2.sock": generate, "infer.embed.sock": embed, "infer.rerank.sock": rerank };
  let asked = 0;
  for (const [leaf, ask] of Object.entries(surfaces)) {
    const path = places.map((place) => join(place, leaf)).find(existsSync);
    if (path === undefined) {
      console.error(`no ${leaf}: skipped`);
      continue;
    }
    asked += 1;
    await ask(path);
  }
  if (asked === 0) throw new Error(`no daemon in ${places[0]}`);
}

main().catch((error) => {
  console.error(`client.mjs: ${error.message}`);
  process.exitCode = 1;
});
