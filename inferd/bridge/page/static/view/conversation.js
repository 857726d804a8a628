/** The messages of the open chat: those in sight and some more, following what is written. */

import { Component, createRef } from "../vendor/preact.mjs";
import { grown, newer, newest, older } from "../chat/window.js";
import { html, Watching } from "./html.js";
import { MessageView } from "./message.js";

/** Pixels from the end within which the view follows what is written. */
const NEAR = 80;
/** Heights of the view that are filled without scrolling. */
const FULL = 2;

/**
 * @typedef {import("../chat/branches.js").Message} Message
 * @typedef {{
 *   conversation: import("../state/conversation.js").Conversation, speaker: import("../media/speaker.js").Speaker,
 *   act: (action: string, message: Message) => void, askLink: (address: string) => void,
 * }} Props
 * @extends {Watching<Props>}
 */
export class ConversationView extends Watching {
  #scroller = createRef();
  #range = newest(0);
  #n = 0;
  #chatId = "";
  #isFollowing = true;
  /** @type {{ height: number, top: number } | null} */
  #kept = null;

  watched() {
    return [this.props.conversation, this.props.speaker];
  }

  /** @param {Message[]} path */
  #arrange(path) {
    const id = this.props.conversation.chat?.id ?? "";
    if (id !== this.#chatId || this.#n === 0) {
      this.#range = newest(path.length);
      this.#isFollowing = true;
    } else this.#range = grown(this.#range, this.#n, path.length);
    this.#chatId = id;
    this.#n = path.length;
  }

  componentDidUpdate() {
    const scroller = this.#scroller.current;
    if (!scroller) return;
    if (this.#kept) {
      scroller.scrollTop = this.#kept.top + scroller.scrollHeight - this.#kept.height;
      this.#kept = null;
    } else if (this.#isFollowing && this.#range.end === this.#n) scroller.scrollTop = scroller.scrollHeight;
    const isFull = scroller.scrollHeight > FULL * scroller.clientHeight;
    if (this.#isFollowing && !isFull && this.#range.start > 0) requestAnimationFrame(this.#fill);
  }

  /** Show more of what is older, until the view is full. */
  #fill = () => {
    this.#range = older(this.#range);
    this.setState({});
  };

  #onScroll = () => {
    const scroller = this.#scroller.current;
    const toEnd = scroller.scrollHeight - scroller.scrollTop - scroller.clientHeight;
    this.#isFollowing = toEnd < NEAR;
    if (scroller.scrollTop < NEAR && this.#range.start > 0) this.#showOlder();
    else if (toEnd < NEAR && this.#range.end < this.#n) this.#showNewer();
  };

  #showOlder = () => {
    const scroller = this.#scroller.current;
    this.#kept = { height: scroller.scrollHeight, top: scroller.scrollTop };
    this.#isFollowing = false;
    this.#range = older(this.#range);
    this.setState({});
  };

  #showNewer = () => {
    this.#range = newer(this.#range, this.#n);
    this.setState({});
  };

  #toEnd = () => {
    this.#isFollowing = true;
    this.#range = newest(this.#n);
    this.setState({});
  };

  /** @param {MouseEvent} event */
  #onClick = (event) => {
    const target = event.target instanceof Element ? event.target.closest("[data-do]") : null;
    if (!(target instanceof HTMLElement)) return;
    if (target.dataset.do === "ask-link") this.props.askLink(target.dataset.address ?? "");
    if (target.dataset.do === "copy-code") void copyCode(target);
  };

  render() {
    const { conversation } = this.props;
    const { path, absent, isLoading } = conversation;
    this.#arrange(path);
    const { start, end } = this.#range;
    return html`
      <section class="conversation" aria-label="Conversation" ref=${this.#scroller} onScroll=${this.#onScroll} onClick=${this.#onClick} tabindex="0">
        <div class="messages">
          ${start > 0 ? html`<button type="button" class="more" onClick=${this.#showOlder}>Show older messages (${start})</button>` : null}
          ${path.slice(start, end).map((message, number) => this.#message(message, start + number === path.length - 1))}
          ${end < path.length ? html`<button type="button" class="more" onClick=${this.#showNewer}>Show newer messages (${path.length - end})</button>` : null}
          ${absent ? html`<${Absent} said=${absent} />` : null}
          ${isLoading ? html`<p class="progress"><span class="busy">Opening the chat</span></p>` : null}
        </div>
        ${end < path.length ? html`<button type="button" class="to-end" onClick=${this.#toEnd}>To the newest message</button>` : null}
      </section>
    `;
  }

  /** @param {Message} message @param {boolean} isLast */
  #message(message, isLast) {
    const { conversation, speaker, act } = this.props;
    return html`<${MessageView}
      key=${message.id}
      message=${message}
      versions=${conversation.versions(message)}
      waiting=${conversation.waiting.get(message.id) ?? null}
      isLast=${isLast}
      isLinked=${conversation.isLinked}
      isSpeaking=${speaker.speaking === message.id}
      act=${act}
      load=${conversation.load}
      decide=${conversation.decide}
    />`;
  }
}

/** @extends {Component<{ said: import("../service/failure.js").Said }>} */
class Absent extends Component {
  render() {
    const { said } = this.props;
    return html`<div class="empty"><h2>${said.what}</h2><p>${said.todo}</p></div>`;
  }
}

/** @param {HTMLElement} button */
async function copyCode(button) {
  const code = button.closest("figure")?.querySelector("code")?.textContent ?? "";
  const isCopied = await copy(code);
  button.textContent = isCopied ? "Copied" : "Select the text to copy it";
  setTimeout(() => {
    button.textContent = "Copy";
  }, 2000);
}

/** @param {string} text @returns {Promise<boolean>} whether the browser let it */
export async function copy(text) {
  try {
    await navigator.clipboard.writeText(text);
    return true;
  } catch {
    return false;
  }
}
