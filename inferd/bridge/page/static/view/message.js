/** One message of a conversation, with what can be done with it. */

import { Component } from "../vendor/preact.mjs";
import { hasEnded } from "../chat/answer.js";
import { ending, leftOut, took, waitingFor } from "../chat/words.js";
import { visible } from "../text/controls.js";
import { AttachmentView } from "./attachments.js";
import { AnswerText } from "./body.js";
import { CallView } from "./calls.js";
import { html } from "./html.js";

/**
 * @typedef {import("../chat/branches.js").Message} Message
 * @typedef {{
 *   message: Message, versions: Message[], waiting: import("../chat/answer.js").Waiting | null,
 *   isLast: boolean, isLinked: boolean, isSpeaking: boolean,
 *   act: (action: string, message: Message) => void,
 *   decide: (message: Message, call: import("../chat/branches.js").ToolCall, isAllowed: boolean) => Promise<boolean>,
 *   load: (attachment: import("../chat/branches.js").Attachment) => Promise<Blob>,
 * }} Props
 * @extends {Component<Props>}
 */
export class MessageView extends Component {
  /** @param {Props} next */
  shouldComponentUpdate(next) {
    const { props } = this;
    return (
      next.message !== props.message ||
      next.versions !== props.versions ||
      next.waiting !== props.waiting ||
      next.isLast !== props.isLast ||
      next.isLinked !== props.isLinked ||
      next.isSpeaking !== props.isSpeaking
    );
  }

  render() {
    const { message } = this.props;
    return message.role === "prompter" ? this.#prompt(message) : this.#answer(message);
  }

  /** @param {Message} message */
  #prompt(message) {
    return html`
      <article class="message prompt" aria-label="You" data-id=${message.id}>
        ${message.attachments?.length ? html`<div class="attachments">${message.attachments.map((each) => html`<${AttachmentView} key=${each.id} attachment=${each} load=${this.props.load} />`)}</div>` : null}
        ${message.content ? html`<div class="prompt-text">${visible(message.content)}</div>` : null}
        <footer class="actions">
          ${this.#versions()}
          <button type="button" class="quiet" onClick=${this.#does("edit")}>Edit</button>
          <button type="button" class="quiet" onClick=${this.#does("copy")}>Copy</button>
          ${this.props.isLast
            ? html`<button type="button" class="quiet" onClick=${this.#does("answer")}>Answer</button>`
            : null}
        </footer>
      </article>
    `;
  }

  /** @param {Message} message */
  #answer(message) {
    const isOver = hasEnded(message);
    const name = message.work_parameters?.model_config?.name ?? "Answer";
    return html`
      <article class="message answer" aria-label=${`Answer of ${name}`} aria-busy=${!isOver} data-id=${message.id} data-state=${message.state}>
        ${message.context?.n_left_out ? this.#leftOut(message.context) : null}
        ${message.thinking ? this.#thinking(message) : null}
        ${(message.tool_calls ?? []).map((call) => html`<${CallView} key=${call.id} call=${call} isOver=${isOver} decide=${this.#decide} />`)}
        ${message.content ? html`<${AnswerText} text=${message.content} />` : null}
        ${message.safety_label && isOver && !message.error ? html`<p class="ending">The filter of this service: ${visible(message.safety_label)}. ${visible(message.safety_rots ?? "")}</p>` : null}
        ${(message.notes ?? []).map((note) => html`<p class="ending">Answered without ${visible(note)}.</p>`)}
        ${isOver ? null : this.#progress()}
        ${isOver ? this.#ending(message) : null}
        ${isOver ? this.#footer(message, name) : null}
      </article>
    `;
  }

  /** @param {import("../chat/branches.js").LeftOut} context */
  #leftOut(context) {
    return html`
      <details class="left-out">
        <summary>${leftOut(context)}</summary>
        ${context.summary
          ? html`<p>${visible(context.summary)}</p>`
          : html`<p>A longer answer may need them. Start a new chat, or say again what matters.</p>`}
      </details>
    `;
  }

  /** @param {Message} message */
  #thinking(message) {
    const isOver = hasEnded(message) || message.content !== "";
    return html`
      <details class="thinking">
        <summary>${isOver ? "Thought before answering" : html`<span class="busy">Thinking</span>`}</summary>
        <div class="thinking-text">${visible(message.thinking ?? "")}</div>
      </details>
    `;
  }

  /** @param {import("../chat/branches.js").ToolCall} call @param {boolean} isAllowed */
  #decide = (call, isAllowed) => this.props.decide(this.props.message, call, isAllowed);

  #progress() {
    const { message, waiting, isLinked } = this.props;
    if (!isLinked) return html`<p class="progress lost">The connection was lost. The answer goes on; this page looks for it again.</p>`;
    const hasBegun = message.content !== "" || Boolean(message.thinking);
    if (hasBegun) return html`<p class="progress"><span class="busy">Writing</span></p>`;
    return html`<p class="progress"><span class="busy">${waitingFor(waiting)}</span></p>`;
  }

  /** @param {Message} message */
  #ending(message) {
    const text = ending(message);
    const isFailure = message.state === "aborted_by_worker" || message.state === "timeout";
    return text ? html`<p class=${isFailure ? "ending failed" : "ending"}>${visible(text)}</p>` : null;
  }

  /** @param {Message} message @param {string} name */
  #footer(message, name) {
    const { isSpeaking } = this.props;
    return html`
      <footer class="actions">
        ${this.#versions()}
        <button type="button" class="quiet" onClick=${this.#does("again")}>Regenerate</button>
        <button type="button" class="quiet" onClick=${this.#does("copy")}>Copy</button>
        ${"speechSynthesis" in globalThis
          ? html`<button type="button" class="quiet" aria-pressed=${isSpeaking} onClick=${this.#does("speak")}>${isSpeaking ? "Stop reading" : "Read aloud"}</button>`
          : null}
        <span class="facts">${[name, took(message)].filter(Boolean).join(" · ")}</span>
      </footer>
    `;
  }

  #versions() {
    const { versions, message, act } = this.props;
    if (versions.length < 2) return null;
    const at = versions.findIndex(({ id }) => id === message.id);
    const choose = (/** @type {number} */ step) => () => {
      const version = versions[at + step];
      if (version) act("choose", version);
    };
    return html`
      <span class="versions" role="group" aria-label="Versions of this message">
        <button type="button" class="quiet" aria-label="Previous version" disabled=${at <= 0} onClick=${choose(-1)}>‹</button>
        <span>${at + 1}/${versions.length}</span>
        <button type="button" class="quiet" aria-label="Next version" disabled=${at >= versions.length - 1} onClick=${choose(1)}>›</button>
      </span>
    `;
  }

  /** @param {string} action */
  #does(action) {
    return () => this.props.act(action, this.props.message);
  }
}
