/**
 * Splits Markdown that is still being written into finished blocks and the one that grows.
 *
 * A finished block never changes again, so it is rendered once. Each line is looked at once.
 */

const FENCE = /^( {0,3}|\s*)(`{3,}|~{3,})/;
const LIST_ITEM = /^ {0,3}([-*+]|\d{1,9}[.)])(\s|$)/;
const HEADING = /^ {0,3}#{1,6}(\s|$)/;
const INDENTED = /^(\t| {2,})\S/;
const BLANK = /^\s*$/;

export class BlockSplitter {
  /** @type {string[]} */
  finished = [];
  /** Text of the block that may still grow. */
  rest = "";
  #lineStart = 0;
  #searchFrom = 0;
  #fence = "";
  #fenceIsNested = false;
  #isList = false;
  #hasLine = false;
  #afterBlank = false;

  /**
   * Take more text.
   * @param {string} text
   */
  add(text) {
    this.rest += text;
    for (;;) {
      const end = this.rest.indexOf("\n", this.#searchFrom);
      if (end < 0) {
        this.#searchFrom = this.rest.length;
        return;
      }
      this.#takeLine(this.rest.slice(this.#lineStart, end), end + 1);
    }
  }

  /** @param {string} line @param {number} next where the line behind it begins */
  #takeLine(line, next) {
    if (this.#fence) {
      this.#takeFenced(line, next);
      return;
    }
    if (BLANK.test(line)) {
      this.#afterBlank = this.#hasLine;
      this.#advance(next);
      return;
    }
    if (this.#afterBlank && this.#startsBlock(line)) next = this.#cut(this.#lineStart, next);
    this.#afterBlank = false;
    if (!this.#hasLine) this.#isList = LIST_ITEM.test(line);
    this.#hasLine = true;
    const fence = FENCE.exec(line);
    if (fence) {
      this.#fence = fence[2] ?? "";
      this.#fenceIsNested = this.#isList;
    }
    this.#advance(next);
    if (!fence && !this.#isList && HEADING.test(line)) this.#cut(next, next);
  }

  /** @param {string} line @param {number} next */
  #takeFenced(line, next) {
    const close = line.trim();
    const isClosed = close.startsWith(this.#fence) && close.replaceAll(this.#fence[0] ?? "", "") === "";
    this.#advance(next);
    if (!isClosed) return;
    this.#fence = "";
    if (!this.#fenceIsNested) this.#cut(next, next);
  }

  /** @param {string} line behind an empty one @returns {boolean} */
  #startsBlock(line) {
    if (INDENTED.test(line)) return false;
    return !(this.#isList && LIST_ITEM.test(line));
  }

  /** @param {number} next */
  #advance(next) {
    this.#lineStart = next;
    this.#searchFrom = next;
  }

  /**
   * End the block at a place.
   * @param {number} at
   * @param {number} next a later place
   * @returns {number} that later place in what is left
   */
  #cut(at, next) {
    const block = this.rest.slice(0, at);
    if (block.trim()) this.finished.push(block);
    this.rest = this.rest.slice(at);
    this.#hasLine = false;
    this.#isList = false;
    this.#afterBlank = false;
    this.#advance(next - at);
    return next - at;
  }
}
