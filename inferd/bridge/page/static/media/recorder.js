/** Hears the microphone, and has the bridge write down what is said while it is said. */

import { Failure, TakeError } from "../service/failure.js";
import { Phrases, wavOf } from "./phrases.js";

/** Seconds of a dictation: what somebody says in one message. */
export const MAX_RECORDED_S = 300;
/** Samples a second, as whisper models hear. */
const RATE = 16000;
/** Milliseconds between two looks at what was said; one waits for the answer of the other. */
const LOOK_MS = 1000;
const MODULE = "/page/media/capture.js";
/** Codes of a bridge that has no model for speech. */
const NO_SPEECH_MODEL = new Set(["model_not_found", "unsupported_parameter"]);

/**
 * @typedef {{ samples: Float32Array, rate: number }} Sound
 * @typedef {(sound: Sound) => Promise<string>} WriteDown
 */

/** The microphone, while it is heard. */
class Microphone {
  /** @param {MediaStream} stream @param {AudioContext} context @param {AudioWorkletNode} node */
  constructor(stream, context, node) {
    this.stream = stream;
    this.context = context;
    this.node = node;
  }

  /** @returns {Promise<Microphone>} rejects where there is none, or nobody allows it */
  static async open() {
    if (!navigator.mediaDevices) throw new TakeError("This address gives a page no microphone. Open it with https, or on localhost.");
    const stream = await navigator.mediaDevices.getUserMedia({ audio: true });
    try {
      const context = new AudioContext({ sampleRate: RATE });
      await context.audioWorklet.addModule(MODULE);
      const node = new AudioWorkletNode(context, "capture", { numberOfOutputs: 0 });
      context.createMediaStreamSource(stream).connect(node);
      return new Microphone(stream, context, node);
    } catch (error) {
      for (const track of stream.getTracks()) track.stop();
      throw error;
    }
  }

  close() {
    for (const track of this.stream.getTracks()) track.stop();
    void this.context.close();
  }
}

/** One dictation: what was said so far, and what is being said. */
export class Dictation {
  /** @type {Microphone | null} */
  #microphone = null;
  #phrases = new Phrases(RATE);
  #written = "";
  /** @type {Promise<void>} */
  #writing = Promise.resolve();
  /** @type {ReturnType<typeof setInterval> | undefined} */
  #timer;
  #isBusy = false;
  #heard = 0;
  #lastLooked = 0;

  /**
   * @param {WriteDown} writeDown
   * @param {(text: string) => void} show is told what was said so far
   * @param {(error?: unknown) => void} end is told that it has ended by itself
   */
  constructor(writeDown, show, end) {
    this.#writeDown = writeDown;
    this.#show = show;
    this.#end = end;
  }

  /** @type {WriteDown} */
  #writeDown;
  /** @type {(text: string) => void} */
  #show;
  /** @type {(error?: unknown) => void} */
  #end;

  /** Begin to hear. Rejects where there is no microphone, or nobody allows it. */
  async start() {
    this.#microphone = await Microphone.open();
    this.#phrases = new Phrases(this.#microphone.context.sampleRate);
    this.#microphone.node.port.onmessage = ({ data }) => this.hear(data);
    this.#timer = setInterval(() => this.look(), LOOK_MS);
  }

  /** @param {Float32Array} piece */
  hear(piece) {
    this.#heard += piece.length;
    this.#phrases.add(piece);
    if (this.#heard > MAX_RECORDED_S * this.#phrases.rate) this.#end();
  }

  /** Have written down what is new, unless that is being done. */
  look() {
    if (this.#isBusy || !this.#phrases.hasSpeech || this.#heard === this.#lastLooked) return;
    this.#lastLooked = this.#heard;
    this.#writing = this.#write(false).catch((error) => this.#end(error));
  }

  /** @param {boolean} isLast */
  async #write(isLast) {
    this.#isBusy = true;
    try {
      const { samples, hasEnded } = this.#phrases.take(isLast);
      const text = await this.#writeDown({ samples, rate: this.#phrases.rate });
      const all = [this.#written, text].filter(Boolean).join(" ");
      if (hasEnded) this.#written = all;
      this.#show(all);
    } finally {
      this.#isBusy = false;
    }
  }

  /** Hear no more, and have the rest written down. */
  async stop() {
    this.abandon();
    await this.#writing;
    if (this.#phrases.hasSpeech) await this.#write(true);
  }

  /** Hear no more. */
  abandon() {
    clearInterval(this.#timer);
    this.#microphone?.close();
    this.#microphone = null;
  }
}

/**
 * Have sound written down.
 * @param {import("../service/client.js").ServiceClient} client
 * @param {Sound} sound
 * @returns {Promise<string>}
 */
export async function transcribe(client, { samples, rate }) {
  const form = new FormData();
  form.append("file", new Blob([wavOf(samples, rate)], { type: "audio/wav" }), "dictation.wav");
  form.append("response_format", "json");
  try {
    const { text } = await client.json("/v1/audio/transcriptions", { form });
    return String(text).trim();
  } catch (error) {
    if (error instanceof Failure && NO_SPEECH_MODEL.has(error.code)) throw new TakeError("No model of this machine writes speech down. Its operator can serve a whisper model.");
    throw error;
  }
}
