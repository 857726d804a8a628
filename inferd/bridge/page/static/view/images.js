/** Pictures of a message, which are asked for with the token and shown from memory. */

import { Component } from "../vendor/preact.mjs";
import { html } from "./html.js";

/**
 * @typedef {{ message: import("../chat/branches.js").Message, client: import("../service/client.js").ServiceClient }} Props
 * @extends {Component<Props, { urls: string[] }>}
 */
export class StoredImages extends Component {
  state = { urls: /** @type {string[]} */ ([]) };
  #isGone = false;

  componentDidMount() {
    void this.#load();
  }

  componentWillUnmount() {
    this.#isGone = true;
    for (const url of this.state.urls) URL.revokeObjectURL(url);
  }

  async #load() {
    const { message, client } = this.props;
    for (const [number] of (message.images ?? []).entries()) {
      const path = `/chats/${message.chat_id}/messages/${message.id}/images/${number}`;
      const blob = await client.ask(path).then((response) => response.blob(), () => null);
      if (this.#isGone || !blob) return;
      this.setState(({ urls }) => ({ urls: [...urls, URL.createObjectURL(blob)] }));
    }
  }

  render() {
    return html`<div class="pictures">${this.state.urls.map((url) => html`<img src=${url} alt="Picture that was sent" />`)}</div>`;
  }
}
