/** Templates, and a component that is drawn again after each change of what it watches. */

import { Component, h } from "../vendor/preact.mjs";
import htm from "../vendor/htm.mjs";

/** @type {(strings: TemplateStringsArray, ...values: any[]) => any} */
export const html = htm.bind(h);

/**
 * @template P
 * @extends {Component<P>}
 */
export class Watching extends Component {
  /** @type {(() => void)[]} */
  #ends = [];

  /** @returns {import("../state/store.js").Store[]} what it watches */
  watched() {
    return [];
  }

  componentDidMount() {
    this.#ends = this.watched().map((store) => store.watch(() => this.setState({})));
  }

  componentWillUnmount() {
    for (const end of this.#ends) end();
  }
}
