/** Splits what somebody says into phrases at the pauses, and writes them as files of sound. */

/** Seconds without speech after which a phrase has ended. */
const PAUSE_S = 0.8;
/** Seconds after which a phrase ends though nobody pauses: what a whisper model hears at once is 30. */
const LONGEST_S = 25;
/** Seconds of silence that are kept before a phrase, so that its first sound is whole. */
const LEAD_S = 0.3;
/** Loudness from which a piece is speech, of a full scale of 1; a quiet room has a tenth. */
const SPEECH = 0.01;
const HEADER_BYTES = 44;
const LOUDEST = 32767;

/** @typedef {{ samples: Float32Array, hasEnded: boolean }} Phrase */

/** What is being said. */
export class Phrases {
  /** @type {Float32Array[]} */
  #pieces = [];
  #length = 0;
  #silent = 0;
  #hasSpeech = false;

  /** @param {number} rate samples a second */
  constructor(rate) {
    this.rate = rate;
  }

  /** @param {Float32Array} piece of sound, as it comes */
  add(piece) {
    this.#pieces.push(piece);
    this.#length += piece.length;
    const isSpeech = loudness(piece) >= SPEECH;
    this.#silent = isSpeech ? 0 : this.#silent + piece.length;
    this.#hasSpeech ||= isSpeech;
    if (!this.#hasSpeech) this.#keepLead();
  }

  /** Whether something was said since the last phrase ended. */
  get hasSpeech() {
    return this.#hasSpeech;
  }

  /** Seconds of the phrase so far. */
  get seconds() {
    return this.#length / this.rate;
  }

  /**
   * Return the phrase so far; one that has ended is not returned again.
   * @param {boolean} isLast whether nothing follows
   * @returns {Phrase}
   */
  take(isLast = false) {
    const samples = joined(this.#pieces, this.#length);
    const hasEnded = isLast || this.#silent >= PAUSE_S * this.rate || this.seconds >= LONGEST_S;
    if (hasEnded) this.#forget();
    return { samples, hasEnded };
  }

  #forget() {
    this.#pieces = [];
    this.#length = this.#silent = 0;
    this.#hasSpeech = false;
  }

  #keepLead() {
    while (this.#length - (this.#pieces[0]?.length ?? 0) > LEAD_S * this.rate) {
      this.#length -= this.#pieces.shift()?.length ?? 0;
    }
  }
}

/** @param {Float32Array} piece @returns {number} the root of its mean square */
function loudness(piece) {
  let sum = 0;
  for (const sample of piece) sum += sample * sample;
  return Math.sqrt(sum / Math.max(1, piece.length));
}

/** @param {Float32Array[]} pieces @param {number} length @returns {Float32Array} */
function joined(pieces, length) {
  const samples = new Float32Array(length);
  let at = 0;
  for (const piece of pieces) {
    samples.set(piece, at);
    at += piece.length;
  }
  return samples;
}

/**
 * Write a file of sound: WAV, one channel of 16 bits.
 * @param {Float32Array} samples from -1 to 1
 * @param {number} rate samples a second
 * @returns {ArrayBuffer}
 */
export function wavOf(samples, rate) {
  const n_bytes = samples.length * 2;
  const view = new DataView(new ArrayBuffer(HEADER_BYTES + n_bytes));
  const words = (/** @type {number} */ at, /** @type {string} */ text) => {
    for (let n = 0; n < text.length; n += 1) view.setUint8(at + n, text.charCodeAt(n));
  };
  words(0, "RIFF");
  view.setUint32(4, HEADER_BYTES - 8 + n_bytes, true);
  words(8, "WAVEfmt ");
  view.setUint32(16, 16, true); // bytes of what follows until "data"
  view.setUint16(20, 1, true); // plain samples
  view.setUint16(22, 1, true); // channels
  view.setUint32(24, rate, true);
  view.setUint32(28, rate * 2, true); // bytes a second
  view.setUint16(32, 2, true); // bytes of one sample of all channels
  view.setUint16(34, 16, true); // bits of a sample
  words(36, "data");
  view.setUint32(40, n_bytes, true);
  samples.forEach((sample, n) => view.setInt16(HEADER_BYTES + 2 * n, Math.round(Math.max(-1, Math.min(1, sample)) * LOUDEST), true));
  return view.buffer;
}
