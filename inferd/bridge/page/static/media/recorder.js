/** Records speech and has the bridge write it down. */

/** Seconds of a recording: what somebody says in one message. */
export const MAX_RECORDED_S = 300;

export class Recorder {
  /** @type {MediaRecorder | null} */
  #recorder = null;
  /** @type {Blob[]} */
  #parts = [];
  /** @type {ReturnType<typeof setTimeout> | undefined} */
  #timer;

  /** Begin to record. Rejects where there is no microphone, or nobody allows it. */
  async start() {
    if (!navigator.mediaDevices) throw new Error("this address gives a page no microphone; use https or localhost");
    const stream = await navigator.mediaDevices.getUserMedia({ audio: true });
    this.#parts = [];
    this.#recorder = new MediaRecorder(stream);
    this.#recorder.ondataavailable = ({ data }) => this.#parts.push(data);
    this.#recorder.start(1000);
    this.#timer = setTimeout(() => this.#recorder?.stop(), MAX_RECORDED_S * 1000);
  }

  /** @returns {Promise<Blob>} what was recorded */
  async stop() {
    clearTimeout(this.#timer);
    const recorder = this.#recorder;
    this.#recorder = null;
    if (!recorder) return new Blob();
    if (recorder.state !== "inactive") {
      const ended = new Promise((resolve) => recorder.addEventListener("stop", resolve, { once: true }));
      recorder.stop();
      await ended;
    }
    for (const track of recorder.stream.getTracks()) track.stop();
    return new Blob(this.#parts, { type: recorder.mimeType });
  }
}

/**
 * Have a recording written down.
 * @param {import("../service/client.js").ServiceClient} client
 * @param {Blob} recording
 * @returns {Promise<string>}
 */
export async function transcribe(client, recording) {
  const form = new FormData();
  form.append("file", recording, "recording.webm");
  form.append("response_format", "json");
  const { text } = await client.json("/v1/audio/transcriptions", { form });
  return String(text).trim();
}
