/** Runs in the thread of sound: passes on what the microphone gives. */

/** Samples that are passed on at once: an eighth of a second. */
const PIECE = 2048;

class Capture extends AudioWorkletProcessor {
  #piece = new Float32Array(PIECE);
  #length = 0;

  /** @param {Float32Array[][]} inputs @returns {boolean} whether it goes on */
  process([input]) {
    const samples = input?.[0];
    for (let at = 0; samples && at < samples.length; ) {
      const part = samples.subarray(at, at + PIECE - this.#length);
      this.#piece.set(part, this.#length);
      this.#length += part.length;
      at += part.length;
      if (this.#length === PIECE) this.#pass();
    }
    return true;
  }

  #pass() {
    this.port.postMessage(this.#piece, [this.#piece.buffer]);
    this.#piece = new Float32Array(PIECE);
    this.#length = 0;
  }
}

registerProcessor("capture", Capture);
