/** The list of chats, the search, and the way to the other views. */

import { visible } from "../text/controls.js";
import { html, Watching } from "./html.js";

/** Milliseconds without a key until a search begins. */
const PAUSE_MS = 250;

/**
 * @typedef {import("../state/chats.js").Chat} Chat
 * @typedef {{
 *   chats: import("../state/chats.js").Chats, session: import("../state/session.js").Session,
 *   openId: string | null, place: string, hide: () => void,
 *   rename: (chat: Chat) => void, remove: (chat: Chat) => void,
 * }} Props
 * @extends {Watching<Props>}
 */
export class Sidebar extends Watching {
  /** @type {ReturnType<typeof setTimeout> | undefined} */
  #timer;

  watched() {
    return [this.props.chats, this.props.session];
  }

  /** @param {InputEvent & { currentTarget: HTMLInputElement }} event */
  #onInput = (event) => {
    const query = event.currentTarget.value;
    clearTimeout(this.#timer);
    this.#timer = setTimeout(() => void this.props.chats.search(query), PAUSE_MS);
  };

  render() {
    const { chats, session, place, hide } = this.props;
    return html`
      <nav class="sidebar" id="sidebar" aria-label="Chats">
        <div class="sidebar-top">
          <a class="button primary new-chat" href="#/" onClick=${hide}>New chat</a>
          <button type="button" class="quiet hide-sidebar" onClick=${hide}>Close</button>
        </div>
        <input type="search" id="search" placeholder="Search chats" aria-label="Search chats" onInput=${this.#onInput} />
        ${chats.hits === null ? this.#list() : this.#found(chats.hits)}
        <div class="sidebar-end">
          <a href="#/status" aria-current=${place === "status" ? "page" : null} onClick=${hide}>Status</a>
          ${session.hasToken ? html`<button type="button" class="quiet" onClick=${() => session.signOut()}>Sign out</button>` : null}
        </div>
      </nav>
    `;
  }

  #list() {
    const { chats } = this.props;
    if (chats.isLoaded && chats.chats.length === 0) return html`<p class="hint none">Chats that you begin are kept here, until you delete them.</p>`;
    return html`
      <ul class="chats">
        ${chats.chats.map((chat) => this.#chat(chat))}
        ${chats.next ? html`<li><button type="button" class="more" onClick=${() => chats.loadMore()}>Older chats</button></li>` : null}
      </ul>
    `;
  }

  /** @param {Chat} chat */
  #chat(chat) {
    const { openId, hide, rename, remove } = this.props;
    const title = titleOf(chat);
    const isOpen = chat.id === openId;
    return html`
      <li key=${chat.id} class=${isOpen ? "open" : ""}>
        <a href=${`#/chat/${chat.id}`} aria-current=${isOpen ? "page" : null} title=${title} onClick=${hide}>${title}</a>
        <span class="chat-actions">
          <button type="button" class="quiet" aria-label=${`Rename “${title}”`} onClick=${() => rename(chat)}>Rename</button>
          <button type="button" class="quiet" aria-label=${`Delete “${title}”`} onClick=${() => remove(chat)}>Delete</button>
        </span>
      </li>
    `;
  }

  /** @param {import("../state/chats.js").Hit[]} hits */
  #found(hits) {
    if (hits.length === 0) return html`<p class="hint none">No message has all of these words.</p>`;
    return html`
      <ul class="chats found">
        ${hits.map((hit) => html`
          <li key=${hit.message_id}>
            <a href=${`#/chat/${hit.chat_id}/${hit.message_id}`} onClick=${this.props.hide}>
              <span class="hit-title">${visible(hit.title ?? "Untitled")}</span>
              <span class="excerpt">${visible(hit.excerpt)}</span>
            </a>
          </li>
        `)}
      </ul>
    `;
  }
}

/** @param {{ title: string | null }} chat @returns {string} */
export function titleOf({ title }) {
  return visible(title ?? "") || "Untitled";
}
