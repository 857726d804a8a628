/** Where a message is written, with the choice of the model and what goes with it. */

import { Component, createRef } from "../vendor/preact.mjs";
import { contextUse, count } from "../chat/words.js";
import { attach, checkTaken, forget, MAX_FILES, mediaOf, withTexts } from "../media/files.js";
import { Dictation, transcribe } from "../media/recorder.js";
import { TakeError } from "../service/failure.js";
import { ChosenFiles } from "./attachments.js";
import { html, Watching } from "./html.js";

/** Rows that the field grows to. */
const MOST_ROWS_PX = 260;

/**
 * @typedef {import("../media/files.js").Attached} Attached
 * @typedef {import("../state/conversation.js").Choice} Choice
 * @typedef {{ text: string, files: Attached[] }} Draft
 * @typedef {import("../chat/branches.js").Message} Message
 * @typedef {{
 *   conversation: import("../state/conversation.js").Conversation, chats: import("../state/chats.js").Chats,
 *   model: string, thinking: boolean | null, edited: Message | null,
 *   choose: (model: string) => void, think: (thinking: boolean) => void,
 *   endEdit: () => void, openSettings: () => void, mounted: (composer: Composer | null) => void,
 * }} Props
 * @extends {Watching<Props>}
 */
export class Composer extends Watching {
  #field = createRef();
  #chooser = createRef();
  /** @type {Attached[]} */
  #files = [];
  /** @type {Dictation | null} */
  #dictation = null;
  /** @type {"" | "recording" | "writing"} */
  #voice = "";
  /** What was written before an edit began; its files go with it. @type {Draft | null} */
  #draft = null;
  /** Whether a message is to be sent once the models are listed. */
  #isWaiting = false;

  watched() {
    return [this.props.conversation, this.props.chats];
  }

  componentDidMount() {
    super.componentDidMount();
    this.props.mounted(this);
  }

  componentWillUnmount() {
    super.componentWillUnmount();
    this.#forgetFiles();
    this.#draft?.files.forEach(forget);
    this.props.mounted(null);
  }

  /** @param {Props} before */
  componentDidUpdate(before) {
    const { chats, edited, model } = this.props;
    if (edited && edited !== before.edited) {
      if (before.edited) this.#forgetFiles();
      else this.#draft = this.#takeOut();
      void this.#edit(edited);
    } else if (!edited && this.#draft) {
      this.#putBack(this.#draft);
      this.#draft = null;
    }
    if (this.#isWaiting && (model || chats.isLoaded)) {
      this.#isWaiting = false;
      void this.#send();
    }
  }

  /** @param {Message} edited whose text and files another version begins with */
  async #edit(edited) {
    const { conversation } = this.props;
    this.#put(edited.content);
    await conversation.notices.trying(async () => {
      for (const attachment of edited.attachments ?? []) {
        const blob = await conversation.load(attachment);
        if (this.props.edited !== edited) return;
        await this.take([new File([blob], attachment.name, { type: attachment.media_type })]);
      }
    });
  }

  #forgetFiles() {
    this.#files.forEach(forget);
    this.#files = [];
  }

  /** Empty the composer; return what was in it. @returns {Draft} */
  #takeOut() {
    const draft = { text: this.#field.current.value, files: this.#files };
    this.#files = [];
    this.#put("");
    return draft;
  }

  /** Put a draft before what has been written since. @param {Draft} draft */
  #putBack({ text, files }) {
    this.#files = [...files, ...this.#files];
    this.#put([text, this.#field.current.value].filter(Boolean).join("\n"));
    this.setState({});
  }

  /** @param {string} text */
  #put(text) {
    const field = this.#field.current;
    field.value = text;
    this.#fit();
    field.focus();
  }

  #fit = () => {
    const field = this.#field.current;
    field.style.height = "auto";
    field.style.height = `${Math.min(MOST_ROWS_PX, field.scrollHeight)}px`;
  };

  /** @param {KeyboardEvent} event */
  #onKey = (event) => {
    if (event.key === "Enter" && !event.shiftKey && !event.isComposing) {
      event.preventDefault();
      void this.#send();
    } else if (event.key === "Escape") {
      if (this.props.edited) this.#cancelEdit();
      else void this.props.conversation.stop();
    }
  };

  /** Send once the models are listed; where none is, say so. */
  #waitForModels() {
    const { chats, conversation } = this.props;
    this.#isWaiting = !chats.isLoaded;
    if (chats.isLoaded) {
      conversation.notices.tell({ what: "No model is served, so nothing can answer.", todo: "The operator of the machine loads one; then send this again." });
      void chats.loadModels();
    }
    this.setState({});
  }

  #cancelEdit = () => {
    this.props.endEdit();
    this.#takeOut().files.forEach(forget);
    this.setState({});
  };

  #send = async () => {
    const { chats, conversation, edited, endEdit, model, thinking } = this.props;
    const content = withTexts(this.#field.current.value.trim(), this.#files);
    const attachments = mediaOf(this.#files);
    if (!(content || attachments.length) || conversation.current || conversation.isSending) return;
    if (!model) {
      this.#waitForModels();
      return;
    }
    const isTaken = await conversation.notices.trying(async () => checkTaken(this.#files, chats.model(model)));
    if (!isTaken) return;
    const sent = this.#takeOut(); // what is written from here on is the next message
    this.setState({});
    if (!(await conversation.send({ content, attachments }, { model, thinking }, edited))) {
      this.#putBack(sent);
      return;
    }
    sent.files.forEach(forget);
    if (edited) endEdit();
  };

  // --- files and voice ------------------------------------------------------------------

  /** @param {Iterable<File>} files */
  async take(files) {
    for (const file of files) {
      await this.props.conversation.notices.trying(async () => {
        if (this.#files.length >= MAX_FILES) throw new TakeError(`At most ${MAX_FILES} files go with one message.`);
        const attached = await attach(file);
        this.#files = [...this.#files, attached]; // others may have come in the meantime
      });
    }
    this.setState({});
  }

  /** @param {ClipboardEvent} event */
  #onPaste = (event) => {
    const files = [...(event.clipboardData?.files ?? [])];
    if (files.length === 0) return;
    event.preventDefault();
    void this.take(files);
  };

  /** @param {Event & { currentTarget: HTMLInputElement }} event */
  #onChosen = (event) => {
    void this.take([...(event.currentTarget.files ?? [])]);
    event.currentTarget.value = "";
  };

  #toggleVoice = async () => {
    if (this.#dictation) await this.#endVoice();
    else await this.#startVoice();
  };

  async #startVoice() {
    const { notices, session } = this.props.conversation;
    const before = this.#field.current.value.trim();
    const dictation = new Dictation(
      (sound) => transcribe(session.client, sound),
      (text) => this.#put([before, text].filter(Boolean).join(" ")),
      (error) => void this.#endVoice(error),
    );
    this.#dictation = dictation;
    const isOpen = await notices.trying(() => dictation.start().catch(taken));
    if (isOpen) this.#voice = "recording";
    else this.#dictation = null;
    this.setState({});
  }

  /** @param {unknown} [error] why it cannot go on */
  async #endVoice(error) {
    const dictation = this.#dictation;
    this.#dictation = null;
    if (!dictation) return;
    this.#voice = "writing";
    this.setState({});
    await this.props.conversation.notices.trying(async () => {
      if (error) dictation.abandon();
      else await dictation.stop();
      if (error) throw error;
    });
    this.#voice = "";
    this.setState({});
  }

  // --- what is shown --------------------------------------------------------------------

  render() {
    const { conversation, edited } = this.props;
    const isWriting = conversation.current !== null;
    return html`
      <form class="composer" onSubmit=${this.#onSubmit}>
        ${this.#isWaiting ? html`<p class="editing" role="status">It is sent once the models are listed.</p>` : null}
        ${edited ? html`<p class="editing">Another version of a message. <button type="button" class="quiet" onClick=${this.#cancelEdit}>Keep the old one</button></p>` : null}
        <${ChosenFiles} files=${this.#files} remove=${this.#remove} />
        <textarea
          ref=${this.#field} id="message" rows="1" aria-label="Message" placeholder="Write a message" autofocus readOnly=${this.#voice !== ""}
          onKeyDown=${this.#onKey} onInput=${this.#fit} onPaste=${this.#onPaste}
        ></textarea>
        <div class="composer-row">
          ${this.#models()}
          ${this.#tools()}
          <${ContextMeter} use=${contextUse(conversation.path, this.props.chats.model(this.props.model)?.n_ctx)} />
          ${isWriting
            ? html`<button type="button" class="stop" onClick=${() => conversation.stop()}>Stop</button>`
            : html`<button class="primary" disabled=${conversation.isSending || this.#isWaiting}>Send</button>`}
        </div>
      </form>
    `;
  }

  /** @param {SubmitEvent} event */
  #onSubmit = (event) => {
    event.preventDefault();
    void this.#send();
  };

  #models() {
    const { chats, model, choose } = this.props;
    return html`
      <select class="model" aria-label="Model" onFocus=${() => chats.loadModels()} onChange=${(/** @type {any} */ event) => choose(event.currentTarget.value)}>
        ${chats.models.length === 0 ? html`<option value="">No model</option>` : null}
        ${chats.models.map(({ name, state }) => html`<option value=${name} selected=${name === model}>${state && state !== "ready" ? `${name} (${state.replaceAll("_", " ")})` : name}</option>`)}
      </select>
    `;
  }

  #tools() {
    const { chats, model, thinking, think, openSettings } = this.props;
    const says = { "": "Dictate", recording: "End dictation", writing: "Writing it down" };
    return html`
      <span class="tools">
        ${chats.model(model)?.thinking ? html`<label class="check"><input type="checkbox" checked=${thinking ?? false} onChange=${(/** @type {any} */ event) => think(event.currentTarget.checked)} /> Think first</label>` : null}
        <button type="button" class="quiet" onClick=${() => this.#chooser.current.click()}>Attach</button>
        <input ref=${this.#chooser} type="file" multiple hidden aria-label="Files" onChange=${this.#onChosen} />
        <button type="button" class=${this.#voice === "recording" ? "quiet recording" : "quiet"} disabled=${this.#voice === "writing"} onClick=${this.#toggleVoice}>${says[this.#voice]}</button>
        <button type="button" class="quiet" onClick=${openSettings}>Settings</button>
      </span>
    `;
  }

  /** @param {Attached} file */
  #remove = (file) => {
    this.#files = this.#files.filter((each) => each !== file);
    forget(file);
    this.#field.current.focus();
    this.setState({});
  };
}

/**
 * @typedef {{ use: { used: number, size: number, share: number } | null }} MeterProps
 * @extends {Component<MeterProps>}
 */
class ContextMeter extends Component {
  render() {
    const { use } = this.props;
    if (!use) return html`<span class="context"></span>`;
    const text = `${count(use.used)} of ${count(use.size)} tokens of context`;
    return html`
      <span class="context" title=${text}>
        <meter min="0" max="1" high="0.85" low="0.7" optimum="0" value=${use.share} aria-label=${text}></meter>
        ${Math.round(use.share * 100)} %
      </span>
    `;
  }
}

/** @param {unknown} error @returns {never} */
function taken(error) {
  if (error instanceof TakeError) throw error;
  const text = error instanceof Error ? error.message : String(error);
  if (error instanceof DOMException && error.name === "NotAllowedError") throw new TakeError("The browser does not let this page use the microphone. Allow it beside the address.");
  if (error instanceof DOMException && error.name === "NotFoundError") throw new TakeError("There is no microphone. Connect one, then try again.");
  throw new TakeError(text);
}
