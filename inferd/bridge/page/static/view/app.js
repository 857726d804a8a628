/** The whole page: which view is shown, which dialog is open, and what keys do. */

import { Component } from "../vendor/preact.mjs";
import { hasEnded } from "../chat/answer.js";
import { Speaker } from "../media/speaker.js";
import { visible } from "../text/controls.js";
import { Composer } from "./composer.js";
import { ConversationView, copy } from "./conversation.js";
import { LinkDialog, RemoveDialog, RenameDialog } from "./dialog.js";
import { html, Watching } from "./html.js";
import { SettingsDialog } from "./settings.js";
import { Sidebar, titleOf } from "./sidebar.js";
import { SignIn } from "./signin.js";
import { StatusView } from "./status.js";

/**
 * @typedef {import("../chat/branches.js").Message} Message
 * @typedef {import("../state/chats.js").Chat} Chat
 * @typedef {{
 *   session: import("../state/session.js").Session, notices: import("../state/notices.js").Notices,
 *   chats: import("../state/chats.js").Chats, conversation: import("../state/conversation.js").Conversation,
 *   machine: import("../state/machine.js").Machine,
 * }} Props
 * @extends {Watching<Props>}
 */
export class App extends Watching {
  #speaker = new Speaker();
  #place = "chat";
  #isSidebarShown = false;
  #isDropping = false;
  #model = "";
  /** @type {boolean | null} */
  #thinking = null;
  /** @type {Message | null} */
  #edited = null;
  /** @type {any} */
  #dialog = null;
  /** @type {Composer | null} */
  #composer = null;
  #wasSignedIn = false;

  watched() {
    const { session, notices, chats, conversation } = this.props;
    return [session, notices, chats, conversation];
  }

  componentDidMount() {
    super.componentDidMount();
    addEventListener("hashchange", () => this.#go());
    addEventListener("keydown", this.#onKey);
    document.addEventListener("visibilitychange", () => !document.hidden && this.#isIn && this.props.conversation.refresh());
    void this.props.session.start();
  }

  get #isIn() {
    return this.props.session.state === "signed-in";
  }

  componentDidUpdate() {
    if (this.#isIn && !this.#wasSignedIn) {
      void this.props.chats.load();
      this.#go();
    } else if (!this.#isIn && this.#wasSignedIn) this.props.conversation.close();
    this.#wasSignedIn = this.#isIn;
    const { chat } = this.props.conversation;
    document.title = this.#isIn && chat && this.#place === "chat" ? `${titleOf(chat)} · inferd` : "inferd";
  }

  /** Show what the address names. */
  async #go() {
    const { conversation } = this.props;
    if (!this.#isIn) return;
    const [place = "", id = "", messageId = ""] = location.hash.replace(/^#\/?/, "").split("/");
    this.#place = place === "status" ? "status" : "chat";
    this.#isSidebarShown = false;
    this.#edited = null;
    this.#speaker.stop();
    this.setState({});
    if (place === "chat" && id !== conversation.chat?.id) await conversation.open(id);
    else if (place === "") {
      conversation.close();
      document.getElementById("message")?.focus();
    }
    const message = messageId ? conversation.message(messageId) : null;
    if (message) await conversation.choose(message);
  }

  /** @param {KeyboardEvent} event */
  #onKey = (event) => {
    const isCommand = event.ctrlKey || event.metaKey;
    if (isCommand && event.key.toLowerCase() === "k") {
      event.preventDefault();
      this.#isSidebarShown = true;
      this.setState({}, () => document.getElementById("search")?.focus());
    } else if (event.altKey && event.key.toLowerCase() === "n") {
      event.preventDefault();
      location.hash = "#/";
      document.getElementById("message")?.focus();
    } else if (event.key === "Escape" && this.#isSidebarShown) this.#show(false);
  };

  /** @param {boolean} isShown */
  #show(isShown) {
    this.#isSidebarShown = isShown;
    this.setState({}, () => isShown && document.getElementById("search")?.focus());
  }

  #hide = () => this.#show(false);

  /** @param {any} dialog */
  #open(dialog) {
    this.#dialog = dialog;
    this.setState({});
  }

  #close = () => this.#open(null);

  get #chosenModel() {
    const { chats, conversation } = this.props;
    const wanted = this.#model || conversation.chat?.settings?.model_config_name || localStorage.getItem("inferd.model");
    return (chats.model(wanted) ?? chats.models.find(({ state }) => state === "ready") ?? chats.models[0])?.name ?? "";
  }

  /** @param {string} action @param {Message} message */
  #act = (action, message) => {
    const { conversation, notices } = this.props;
    const choice = { model: this.#chosenModel, thinking: this.#thinking };
    if (action === "edit") {
      this.#edited = message;
      this.setState({});
    } else if (action === "again") void conversation.regenerate(message, choice);
    else if (action === "answer") void conversation.answer(message, choice);
    else if (action === "choose") void conversation.choose(message);
    else if (action === "copy") void copy(message.content).then((isCopied) => notices.speak(isCopied ? "Copied." : "The browser did not let the page copy."));
    else if (action === "speak" && !this.#speaker.toggle(message.id, message.content))
      notices.tell({ what: "This browser has no voice of its own.", todo: "Install a speech synthesiser on this device; voices that ask a network are not used." });
  };

  /** @param {Chat} chat */
  #rename = (chat) => {
    const rename = async (/** @type {string} */ title) => {
      await this.props.chats.rename(chat.id, title);
      this.#close();
    };
    this.#open(html`<${RenameDialog} title=${chat.title ?? ""} close=${this.#close} rename=${rename} />`);
  };

  /** @param {Chat} chat */
  #remove = (chat) => {
    const remove = async () => {
      this.#close();
      const isOpen = this.props.conversation.chat?.id === chat.id;
      if ((await this.props.chats.remove(chat.id)) && isOpen) location.hash = "#/";
    };
    this.#open(html`<${RemoveDialog} title=${titleOf(chat)} close=${this.#close} remove=${remove} />`);
  };

  #openSettings = async () => {
    const { chats, conversation, notices } = this.props;
    if (!conversation.chat) {
      notices.tell({ what: "A chat has settings once it has begun.", todo: "Send its first message, then set them." });
      return;
    }
    const save = async (/** @type {import("../state/chats.js").ChatSettings} */ settings) => {
      if (await conversation.configure(settings)) this.#close();
    };
    const servers = await chats.toolServers();
    if (!conversation.chat) return;
    this.#open(html`<${SettingsDialog} settings=${conversation.chat.settings ?? {}} servers=${servers} close=${this.#close} save=${save} />`);
  };

  /** @param {string} model */
  #choose = (model) => {
    const { conversation } = this.props;
    this.#model = model;
    localStorage.setItem("inferd.model", model);
    this.setState({});
    if (conversation.chat) void conversation.configure({ ...conversation.chat.settings, model_config_name: model });
  };

  /** @param {DragEvent} event */
  #onDrag = (event) => {
    if (!event.dataTransfer?.types.includes("Files")) return;
    event.preventDefault();
    if (!this.#isDropping) {
      this.#isDropping = true;
      this.setState({});
    }
  };

  #onDragEnd = () => {
    this.#isDropping = false;
    this.setState({});
  };

  /** @param {DragEvent} event */
  #onDrop = (event) => {
    event.preventDefault();
    this.#onDragEnd();
    void this.#composer?.take([...(event.dataTransfer?.files ?? [])]);
  };

  /** @param {Composer | null} composer */
  #setComposer = (composer) => {
    this.#composer = composer;
  };

  // --- what is shown --------------------------------------------------------------------

  render() {
    const { session, chats, conversation } = this.props;
    if (!this.#isIn) return html`<${SignIn} session=${session} />`;
    return html`
      <div class=${this.#isSidebarShown ? "page with-sidebar" : "page"} onDragOver=${this.#onDrag} onDrop=${this.#onDrop} onDragLeave=${this.#onDragEnd}>
        <a class="skip" href="#message" onClick=${this.#skip}>To the message field</a>
        <${Sidebar} chats=${chats} session=${session} openId=${this.#place === "chat" ? (conversation.chat?.id ?? null) : null} place=${this.#place} hide=${this.#hide} rename=${this.#rename} remove=${this.#remove} />
        <main>
          ${this.#head()}
          ${this.#place === "status" ? html`<${StatusView} machine=${this.props.machine} session=${session} />` : this.#chat()}
        </main>
        ${this.#isDropping ? html`<p class="dropping">Drop files to send them with the message</p>` : null}
        ${this.#dialog}
        ${this.#said()}
      </div>
    `;
  }

  /** @param {Event} event */
  #skip = (event) => {
    event.preventDefault();
    document.getElementById("message")?.focus();
  };

  #head() {
    const { chat } = this.props.conversation;
    const title = this.#place === "status" ? "Status" : chat ? titleOf(chat) : "New chat";
    return html`
      <header class="head">
        <button type="button" class="show-sidebar" aria-expanded=${this.#isSidebarShown} aria-controls="sidebar" onClick=${() => this.#show(!this.#isSidebarShown)}>Chats</button>
        <p class="title">${title}</p>
        ${this.#place === "chat" && chat ? html`
          <button type="button" class="quiet" onClick=${() => this.#rename(chat)}>Rename</button>
          <button type="button" class="quiet" onClick=${() => this.#remove(chat)}>Delete</button>
        ` : null}
      </header>
    `;
  }

  #chat() {
    const { conversation, chats } = this.props;
    const model = this.#chosenModel;
    if (chats.notOffered !== null) return html`<${NotOffered} reason=${chats.notOffered} />`;
    const isEmpty = conversation.path.length === 0 && !conversation.isLoading && !conversation.absent;
    return html`
      ${isEmpty ? html`<${Empty} chats=${chats} model=${model} />` : html`<${ConversationView} conversation=${conversation} speaker=${this.#speaker} act=${this.#act} askLink=${this.#askLink} />`}
      ${this.#notices()}
      ${conversation.absent ? null : html`<${Composer}
        mounted=${this.#setComposer}
        conversation=${conversation} chats=${chats} model=${model} thinking=${this.#thinking} edited=${this.#edited}
        choose=${this.#choose} think=${this.#think}
        endEdit=${this.#endEdit} openSettings=${this.#openSettings}
      />`}
    `;
  }

  /** @param {string} address */
  #askLink = (address) => this.#open(html`<${LinkDialog} address=${address} close=${this.#close} />`);

  /** @param {boolean} thinking */
  #think = (thinking) => {
    this.#thinking = thinking;
    this.setState({});
  };

  #endEdit = () => {
    this.#edited = null;
    this.setState({});
  };

  #notices() {
    const { notices } = this.props;
    return notices.notices.map(
      ({ id, what, todo }) => html`
        <div class="notice" role="alert" key=${id}>
          <span><strong>${visible(what)}</strong> ${todo}</span>
          <button type="button" class="quiet" onClick=${() => notices.dismiss(id)}>Dismiss</button>
        </div>
      `,
    );
  }

  #said() {
    const { notices, conversation } = this.props;
    const last = conversation.path.at(-1);
    const isWriting = last && last.role === "assistant" && !hasEnded(last);
    return html`<p class="unseen" role="status">${isWriting ? "The answer is being written." : notices.spoken}</p>`;
  }
}

/**
 * @typedef {{ reason: string }} NotOfferedProps
 * @extends {Component<NotOfferedProps>}
 */
class NotOffered extends Component {
  render() {
    return html`
      <section class="empty" aria-label="Chats">
        <h1>This bridge keeps no chats</h1>
        <p>${visible(this.props.reason)}</p>
        <p><a href="#/status">Status</a> shows what the machine does.</p>
      </section>
    `;
  }
}

/**
 * @typedef {{ chats: import("../state/chats.js").Chats, model: string }} EmptyProps
 * @extends {Watching<EmptyProps>}
 */
class Empty extends Watching {
  watched() {
    return [this.props.chats];
  }

  render() {
    const { models, isLoaded } = this.props.chats;
    const isMissing = isLoaded && models.length === 0;
    return html`
      <section class="empty" aria-label="New chat">
        ${isMissing
          ? html`<h1>No model is served</h1><p>The operator of the machine loads one with <code>inferd model pull</code> and <code>inferd serve</code>. This page looks again when it is reloaded.</p>`
          : html`<h1>${this.props.model ? `Ask ${this.props.model}` : "New chat"}</h1><p>Answers are written on this machine and kept with the chat. You may close the page while one is written.</p>
            <dl class="keys">
              <div><dt><kbd>Enter</kbd></dt><dd>sends</dd></div>
              <div><dt><kbd>Shift</kbd> <kbd>Enter</kbd></dt><dd>a new line</dd></div>
              <div><dt><kbd>Esc</kbd></dt><dd>stops the answer</dd></div>
              <div><dt><kbd>Ctrl</kbd> <kbd>K</kbd></dt><dd>searches</dd></div>
              <div><dt><kbd>Alt</kbd> <kbd>N</kbd></dt><dd>a new chat</dd></div>
            </dl>`}
      </section>
    `;
  }
}
