/** Pictures and recordings: those of a message that was sent, and those that are to be sent. */

import { Component } from "../vendor/preact.mjs";
import { size } from "../chat/words.js";
import { kindOf } from "../media/files.js";
import { visible } from "../text/controls.js";
import { html } from "./html.js";

/**
 * @typedef {import("../chat/branches.js").Attachment} Attachment
 * @typedef {{ attachment: Attachment, load: (attachment: Attachment) => Promise<Blob> }} Props
 * @extends {Component<Props>}
 */
export class AttachmentView extends Component {
  /** Address of its bytes within the page; nobody else has it, and it ends with the view. */
  #address = "";
  #fault = "";
  #isLoading = false;
  #isGone = false;

  componentDidMount() {
    if (kindOf(this.props.attachment.media_type) === "picture") void this.#load();
  }

  componentWillUnmount() {
    this.#isGone = true;
    if (this.#address) URL.revokeObjectURL(this.#address);
  }

  #load = async () => {
    if (this.#address || this.#isLoading) return;
    this.#isLoading = true;
    this.#fault = "";
    this.setState({});
    try {
      const blob = await this.props.load(this.props.attachment);
      if (!this.#isGone) this.#address = URL.createObjectURL(blob);
    } catch (error) {
      this.#fault = error instanceof Error ? error.message : String(error);
    }
    this.#isLoading = false;
    if (!this.#isGone) this.setState({});
  };

  #unreadable = () => {
    this.#fault = "this browser cannot show it";
    this.setState({});
  };

  render() {
    const { attachment } = this.props;
    const name = visible(attachment.name);
    return html`
      <figure class="attachment">
        ${this.#shown(attachment.media_type)}
        <figcaption>
          ${name} <span class="hint">${size(attachment.n_bytes)}</span>
          ${this.#fault ? html`<span class="failed"> ${visible(this.#fault)}</span>` : null}
          ${this.#address ? html`<a class="quiet" href=${this.#address} download=${attachment.name}>Save</a>` : null}
        </figcaption>
      </figure>
    `;
  }

  /** @param {string} type */
  #shown(type) {
    const { name } = this.props.attachment;
    if (!this.#address) {
      if (this.#isLoading) return html`<span class="busy hint">Loading</span>`;
      return html`<button type="button" class="quiet" aria-label=${`Load ${name}`} onClick=${this.#load}>${kindOf(type) === "picture" ? "Show" : "Listen"}</button>`;
    }
    if (kindOf(type) === "picture") return html`<img src=${this.#address} alt=${name} onError=${this.#unreadable} />`;
    return html`<audio src=${this.#address} aria-label=${name} controls onError=${this.#unreadable}></audio>`;
  }
}

/**
 * @typedef {import("../media/files.js").Attached} Attached
 * @typedef {{ files: Attached[], remove: (file: Attached) => void }} ChosenProps
 * @extends {Component<ChosenProps>}
 */
export class ChosenFiles extends Component {
  render() {
    const { files, remove } = this.props;
    if (files.length === 0) return null;
    return html`<ul class="files" aria-label="Files of the message">
      ${files.map((file) => html`
        <li>
          ${file.shown ? html`<img src=${file.shown} alt="" />` : null}
          ${file.name} <span class="hint">${size(file.n_bytes)}</span>
          <button type="button" class="quiet" aria-label=${`Remove ${file.name}`} onClick=${() => remove(file)}>×</button>
        </li>`)}
    </ul>`;
  }
}
