/** Dialogs, which the browser's own element keeps modal, and closes by Escape. */

import { Component, createRef } from "../vendor/preact.mjs";
import { html } from "./html.js";
import { copy } from "./conversation.js";

/**
 * @typedef {{ title: string, close: () => void, children?: any }} Props
 * @extends {Component<Props>}
 */
export class Dialog extends Component {
  #element = createRef();

  componentDidMount() {
    this.#element.current.showModal();
  }

  render() {
    const { title, close, children } = this.props;
    return html`
      <dialog ref=${this.#element} onClose=${close} aria-labelledby="dialog-title">
        <h2 id="dialog-title">${title}</h2>
        ${children}
      </dialog>
    `;
  }
}

/**
 * @typedef {{ address: string, close: () => void }} LinkProps
 * @extends {Component<LinkProps>}
 */
export class LinkDialog extends Component {
  render() {
    const { address, close } = this.props;
    return html`
      <${Dialog} title="Open this address?" close=${close}>
        <p class="address">${address}</p>
        <p class="hint">A model wrote it. Opening it tells that site what the address says.</p>
        <div class="buttons">
          <a class="button primary" href=${address} target="_blank" rel="noopener noreferrer nofollow" onClick=${close}>Open in a new tab</a>
          <button type="button" onClick=${() => copy(address).then(close)}>Copy</button>
          <button type="button" onClick=${close}>Cancel</button>
        </div>
      <//>
    `;
  }
}

/**
 * @typedef {{ title: string, close: () => void, remove: () => void }} RemoveProps
 * @extends {Component<RemoveProps>}
 */
export class RemoveDialog extends Component {
  render() {
    const { title, close, remove } = this.props;
    return html`
      <${Dialog} title="Delete this chat?" close=${close}>
        <p>“${title}” and all its messages go for good, on every device.</p>
        <div class="buttons">
          <button type="button" class="danger" onClick=${remove}>Delete</button>
          <button type="button" onClick=${close}>Keep</button>
        </div>
      <//>
    `;
  }
}

/**
 * @typedef {{ title: string, close: () => void, rename: (title: string) => void }} RenameProps
 * @extends {Component<RenameProps>}
 */
export class RenameDialog extends Component {
  /** @param {SubmitEvent & { currentTarget: HTMLFormElement }} event */
  #submit = (event) => {
    event.preventDefault();
    const title = String(new FormData(event.currentTarget).get("title")).trim();
    if (title) this.props.rename(title);
  };

  render() {
    const { title, close } = this.props;
    return html`
      <${Dialog} title="Rename the chat" close=${close}>
        <form onSubmit=${this.#submit}>
          <label class="field">Name <input name="title" value=${title} maxlength="200" required autofocus /></label>
          <div class="buttons">
            <button class="primary">Rename</button>
            <button type="button" onClick=${close}>Cancel</button>
          </div>
        </form>
      <//>
    `;
  }
}
