/** Reads answers aloud with a voice of this machine; voices that ask a network are not used. */

import { Store } from "../state/store.js";

/** Characters that are spoken at once: some browsers end longer ones. */
const PIECE = 200;

/**
 * Split a text into pieces that end with a sentence where there is one.
 * @param {string} text
 * @param {number} [most]
 * @returns {string[]}
 */
export function pieces(text, most = PIECE) {
  const found = [];
  for (let rest = text.trim(); rest; ) {
    let end = rest.length;
    if (end > most) {
      const part = rest.slice(0, most);
      end = Math.max(part.lastIndexOf(". "), part.lastIndexOf("\n"), part.lastIndexOf("? "), part.lastIndexOf("! ")) + 1;
      if (end <= 0) end = part.lastIndexOf(" ") + 1;
      if (end <= 0) end = most;
    }
    found.push(rest.slice(0, end).trim());
    rest = rest.slice(end).trim();
  }
  return found;
}

/** @param {string} markdown @returns {string} what of it is read */
export function spoken(markdown) {
  return markdown
    .replace(/^ *(`{3,}|~{3,})[\s\S]*?(^ *\1`*~* *$|(?![\s\S]))/gm, " (code) ")
    .replace(/!?\[([^\]\n]{0,500})\]\([^)\n]{0,2000}\)/g, "$1")
    .replace(/[*_`#>|~]+/g, " ")
    .replace(/[ \t]+/g, " ");
}

export class Speaker extends Store {
  /** @type {string | null} the message that is read */
  speaking = null;
  #turn = 0;

  /**
   * Read a message, or stop reading it.
   * @param {string} id
   * @param {string} markdown
   * @returns {boolean} whether there is a voice
   */
  toggle(id, markdown) {
    const wasSpeaking = this.speaking === id;
    this.stop();
    if (wasSpeaking) return true;
    const voice = localVoice();
    if (!voice) return false;
    this.speaking = id;
    this.changed();
    this.#read(pieces(spoken(markdown)), voice, this.#turn);
    return true;
  }

  /** Read no more. */
  stop() {
    this.#turn += 1;
    this.speaking = null;
    globalThis.speechSynthesis?.cancel();
    this.changed();
  }

  /** @param {string[]} texts @param {SpeechSynthesisVoice} voice @param {number} turn */
  #read([text, ...others], voice, turn) {
    if (turn !== this.#turn) return;
    if (text === undefined) {
      this.stop();
      return;
    }
    const utterance = new SpeechSynthesisUtterance(text);
    utterance.voice = voice;
    utterance.lang = voice.lang;
    utterance.onend = () => this.#read(others, voice, turn);
    utterance.onerror = () => turn === this.#turn && this.stop();
    speechSynthesis.speak(utterance);
  }
}

/** @returns {SpeechSynthesisVoice | undefined} */
function localVoice() {
  const voices = speechSynthesis.getVoices().filter(({ localService }) => localService);
  const language = navigator.language.split("-")[0] ?? "en";
  return voices.find(({ lang }) => lang.startsWith(language)) ?? voices[0];
}
