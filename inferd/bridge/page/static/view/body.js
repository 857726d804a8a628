/** The text of an answer: each finished block is drawn once, the last one as it grows. */

import { Component, h } from "../vendor/preact.mjs";
import { BlockSplitter } from "../text/blocks.js";
import { renderBlock } from "../text/markdown.js";

/** Finished blocks that are put together, so that a long answer has few parts to compare. */
const GROUP = 32;

/** @extends {Component<{ text: string }>} */
class Block extends Component {
  /** @param {{ text: string }} next */
  shouldComponentUpdate(next) {
    return next.text !== this.props.text;
  }

  render() {
    return renderBlock(this.props.text);
  }
}

/** @extends {Component<{ blocks: string[] }>} */
class Group extends Component {
  /** @param {{ blocks: string[] }} next */
  shouldComponentUpdate(next) {
    return next.blocks.length !== this.props.blocks.length;
  }

  render() {
    return this.props.blocks.map((text, number) => h(Block, { text, key: number }));
  }
}

/** @extends {Component<{ text: string }>} */
export class AnswerText extends Component {
  #splitter = new BlockSplitter();
  #text = "";
  #generation = 0;

  /** @param {{ text: string }} next */
  shouldComponentUpdate(next) {
    return next.text !== this.props.text;
  }

  /** @returns {string[][]} */
  #groups() {
    const { finished } = this.#splitter;
    const groups = [];
    for (let at = 0; at < finished.length; at += GROUP) groups.push(finished.slice(at, at + GROUP));
    return groups;
  }

  render() {
    const { text } = this.props;
    if (!text.startsWith(this.#text)) {
      this.#splitter = new BlockSplitter();
      this.#text = "";
      this.#generation += 1;
    }
    this.#splitter.add(text.slice(this.#text.length));
    this.#text = text;
    return h(
      "div",
      { class: "answer-text", key: this.#generation },
      this.#groups().map((blocks, number) => h(Group, { blocks, key: number })),
      this.#splitter.rest.trim() ? h(Block, { text: this.#splitter.rest, key: "rest" }) : null,
    );
  }
}
