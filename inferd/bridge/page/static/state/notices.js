/** What went wrong, until the reader dismisses it; the newest few. */

import { say } from "../service/failure.js";
import { Store } from "./store.js";

/** Notices that are kept: more would hide the page. */
const MOST = 3;

/** @typedef {import("../service/failure.js").Said & { id: number }} Notice */

export class Notices extends Store {
  /** @type {Notice[]} */
  notices = [];
  /** What a screen reader is told. */
  spoken = "";
  #next = 0;

  /** @param {import("./session.js").Session} session */
  constructor(session) {
    super();
    this.session = session;
  }

  /**
   * Do something, and tell of its failure.
   * @param {() => Promise<unknown>} action
   * @returns {Promise<boolean>} whether it succeeded
   */
  async trying(action) {
    try {
      await action();
      return true;
    } catch (error) {
      this.fail(error);
      return false;
    }
  }

  /** @param {unknown} error */
  fail(error) {
    if (!this.session.isRefused(error)) this.tell(say(error));
  }

  /** @param {import("../service/failure.js").Said} said */
  tell(said) {
    const others = this.notices.filter(({ what }) => what !== said.what);
    this.#next += 1;
    this.notices = [...others, { ...said, id: this.#next }].slice(-MOST);
    this.changed();
  }

  /** @param {number} id */
  dismiss(id) {
    this.notices = this.notices.filter((each) => each.id !== id);
    this.changed();
  }

  /** @param {string} text for a screen reader */
  speak(text) {
    this.spoken = text;
    this.changed();
  }
}
