/** Something that views watch. However often it changes, they look once in each frame. */

/** Milliseconds between looks while no frame is drawn, as in a tab that nobody sees. */
const HIDDEN_MS = 250;

export class Store {
  /** @type {Set<() => void>} */
  #watchers = new Set();
  #isDue = false;

  /**
   * Call a function after each change.
   * @param {() => void} watcher
   * @returns {() => void} ends it
   */
  watch(watcher) {
    this.#watchers.add(watcher);
    return () => this.#watchers.delete(watcher);
  }

  /** Say that something has changed. */
  changed() {
    if (this.#isDue) return;
    this.#isDue = true;
    const tell = () => {
      this.#isDue = false;
      for (const watcher of this.#watchers) watcher();
    };
    if (globalThis.document?.hidden === false) requestAnimationFrame(tell);
    else setTimeout(tell, HIDDEN_MS);
  }
}
