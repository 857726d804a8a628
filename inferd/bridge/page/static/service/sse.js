/** Reads server-sent events out of the text of a response, in whatever pieces it comes. */

/** Characters of one event; a longer one ends the stream. */
export const MAX_EVENT = 4 * 1024 * 1024;

/** @typedef {{ id: string, event: string, data: string }} ServerEvent */

export class EventParser {
  #text = "";
  #id = "";
  #event = "";
  /** @type {string[]} */
  #data = [];
  #size = 0;

  /**
   * Take a piece of the text; return the events that are complete with it.
   * @param {string} piece
   * @returns {ServerEvent[]}
   */
  add(piece) {
    this.#text += piece;
    /** @type {ServerEvent[]} */
    const events = [];
    let start = 0;
    for (let end = this.#text.indexOf("\n"); end >= 0; end = this.#text.indexOf("\n", start)) {
      const event = this.#takeLine(this.#text.slice(start, end).replace(/\r$/, ""));
      if (event) events.push(event);
      start = end + 1;
    }
    this.#text = this.#text.slice(start);
    if (this.#text.length + this.#size > MAX_EVENT) throw new RangeError("an event is too long");
    return events;
  }

  /** @param {string} line @returns {ServerEvent | null} */
  #takeLine(line) {
    if (line === "") return this.#finish();
    if (line.startsWith(":")) return null;
    const colon = line.indexOf(":");
    const name = colon < 0 ? line : line.slice(0, colon);
    const value = colon < 0 ? "" : line.slice(colon + 1).replace(/^ /, "");
    if (name === "id") this.#id = value;
    else if (name === "event") this.#event = value;
    else if (name === "data") {
      this.#data.push(value);
      this.#size += value.length;
    }
    return null;
  }

  /** @returns {ServerEvent | null} */
  #finish() {
    const event = this.#data.length
      ? { id: this.#id, event: this.#event || "message", data: this.#data.join("\n") }
      : null;
    this.#event = "";
    this.#data = [];
    this.#size = 0;
    return event;
  }
}
