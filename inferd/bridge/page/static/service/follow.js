/** Follows the events of an answer across lost connections, without losing or repeating any. */

import { Failure } from "./failure.js";
import { EventParser } from "./sse.js";

/** Seconds between tries, the last of them for all that follow. */
export const PAUSES_S = [0.5, 1, 2, 4, 8];
const NO_CONTENT = 204;

/**
 * @typedef {import("./sse.js").ServerEvent} ServerEvent
 * @typedef {{
 *   lastId?: string,
 *   signal: AbortSignal,
 *   onEvent: (event: ServerEvent) => boolean,
 *   onLink: (isUp: boolean) => void,
 *   pause?: (seconds: number, signal: AbortSignal) => Promise<void>,
 * }} Following `onEvent` tells whether the event was the last one
 */

/**
 * Follow events until the last one, until there are none to come, or until it is cancelled.
 * @param {import("./client.js").ServiceClient} client
 * @param {string} path
 * @param {Following} following
 * @throws {Failure} it was refused
 */
export async function follow(client, path, following) {
  const { signal, onEvent, onLink, pause = wait } = following;
  let lastId = following.lastId ?? "";
  let tries = 0;
  while (!signal.aborted) {
    try {
      const response = await client.ask(path, { signal, headers: heads(lastId) });
      if (response.status === NO_CONTENT) return;
      onLink(true);
      for await (const event of eventsOf(response)) {
        tries = 0;
        if (event.id) lastId = event.id;
        if (onEvent(event)) return;
      }
    } catch (error) {
      if (signal.aborted) return;
      if (error instanceof Failure && !isPassing(error)) throw error;
    }
    if (signal.aborted) return;
    onLink(false);
    await pause(PAUSES_S[Math.min(tries, PAUSES_S.length - 1)] ?? 1, signal);
    tries += 1;
  }
}

/** @param {string} lastId @returns {Record<string, string>} */
function heads(lastId) {
  return { accept: "text/event-stream", ...(lastId ? { "last-event-id": lastId } : {}) };
}

/** @param {Failure} error @returns {boolean} */
function isPassing({ status }) {
  return status === 0 || status === 429 || status === 502 || status === 503 || status === 504;
}

/** @param {Response} response @returns {AsyncGenerator<ServerEvent>} */
async function* eventsOf(response) {
  const reader = response.body?.getReader();
  if (!reader) return;
  const decoder = new TextDecoder();
  const parser = new EventParser();
  try {
    for (;;) {
      const { done, value } = await reader.read();
      if (done) return;
      yield* parser.add(decoder.decode(value, { stream: true }));
    }
  } finally {
    await reader.cancel().catch(() => {});
  }
}

/** @param {number} seconds @param {AbortSignal} signal @returns {Promise<void>} */
function wait(seconds, signal) {
  return new Promise((resolve) => {
    const end = () => {
      clearTimeout(timer);
      globalThis.removeEventListener?.("online", end);
      signal.removeEventListener("abort", end);
      resolve();
    };
    const timer = setTimeout(end, seconds * 1000);
    globalThis.addEventListener?.("online", end);
    signal.addEventListener("abort", end);
  });
}
