/** The chat that is open: its messages, the answers that are being written, what is sent. */

import { Branches } from "../chat/branches.js";
import { emptied, hasEnded, isLast, withEvent } from "../chat/answer.js";
import { ending } from "../chat/words.js";
import { Failure } from "../service/failure.js";
import { follow } from "../service/follow.js";
import { keepRead, takeRead } from "./resumed.js";
import { Store } from "./store.js";

/** Times that a message is sent again after the connection was lost; its id makes it one. */
const TRIES = 3;
const CHANNEL = "inferd.chats";

/**
 * @typedef {import("../chat/branches.js").Message} Message
 * @typedef {import("../chat/answer.js").ChatEvent} ChatEvent
 * @typedef {import("./chats.js").Chat} Chat
 * @typedef {{ model: string, thinking: boolean | null }} Choice
 */

export class Conversation extends Store {
  /** @type {Chat | null} */
  chat = null;
  /** @type {Map<string, Message>} */
  #messages = new Map();
  /** @type {Map<string, AbortController>} */
  #following = new Map();
  /** @type {Map<string, string>} the id of the last event of each */
  #lastIds = new Map();
  #read = takeRead();
  /** @type {Map<string, import("../chat/answer.js").Waiting>} */
  waiting = new Map();
  isLoading = false;
  isLinked = true;
  isSending = false;
  /** @type {import("../service/failure.js").Said | null} */
  absent = null;
  #branches = new Branches([]);
  /** @type {Message[]} */
  path = [];
  #opened = 0;
  #tabs = typeof BroadcastChannel === "undefined" ? null : new BroadcastChannel(CHANNEL);

  /**
   * @param {import("./session.js").Session} session
   * @param {import("./notices.js").Notices} notices
   * @param {import("./chats.js").Chats} chats
   */
  constructor(session, notices, chats) {
    super();
    this.session = session;
    this.notices = notices;
    this.chats = chats;
    this.#tabs?.addEventListener("message", ({ data }) => this.#hear(String(data)));
    globalThis.addEventListener("pagehide", () => this.#keep());
  }

  get #client() {
    return this.session.client;
  }

  /** The answer of this branch that is being written, if there is one. */
  get current() {
    const last = this.path.at(-1);
    return last && last.role === "assistant" && !hasEnded(last) ? last : null;
  }

  /** @param {Message} message @returns {Message[]} */
  versions(message) {
    return this.#branches.versions(message);
  }

  /** @param {string} id @returns {Message | undefined} */
  message(id) {
    return this.#messages.get(id);
  }

  /** Leave the open chat; what is being written goes on without this page. */
  close() {
    this.#opened += 1;
    for (const following of this.#following.values()) following.abort();
    this.#following.clear();
    this.waiting.clear();
    this.#messages.clear();
    this.chat = null;
    this.absent = null;
    this.isLinked = true;
    this.isLoading = false;
    this.#arrange(null);
  }

  /** @param {string} id of a chat */
  async open(id) {
    this.close();
    this.isLoading = true;
    const number = this.#opened;
    await this.#fetch(id, number);
    if (number === this.#opened) this.isLoading = false;
    this.changed();
  }

  /** Look whether another device or tab has changed the chat. */
  async refresh() {
    if (this.chat && !this.isSending && !this.current) await this.#fetch(this.chat.id, this.#opened);
  }

  /** @param {string} id @param {number} number of the opening that asks */
  async #fetch(id, number) {
    try {
      const chat = await this.#client.json(`/chats/${id}`);
      if (number !== this.#opened) return;
      this.chat = chat;
      for (const message of chat.messages ?? []) {
        if (!this.#following.has(message.id)) this.#messages.set(message.id, message);
      }
      this.#arrange(chat.active_thread_tail_message_id ?? null);
      for (const message of this.path) this.#follow(message);
    } catch (error) {
      if (number !== this.#opened) return;
      if (error instanceof Failure && error.status === 404) {
        this.absent = { what: "This chat is not here.", todo: "It may have been deleted on another device. Choose another one." };
        this.changed();
      } else this.notices.fail(error);
    }
  }

  /** @param {string | null} through a message of the branch that is to be shown */
  #arrange(through) {
    this.#branches = new Branches(this.#messages.values());
    this.path = this.#branches.path(through);
    this.changed();
  }

  /** @param {Message} message that has changed, but not its place */
  #replace(message) {
    this.#messages.set(message.id, message);
    const at = this.path.findIndex(({ id }) => id === message.id);
    if (at >= 0) this.path = this.path.with(at, message);
    if (hasEnded(message)) this.#branches = new Branches(this.#messages.values());
    this.changed();
  }

  // --- answers --------------------------------------------------------------------------

  /** @param {Message} message */
  #follow(message) {
    if (message.role !== "assistant" || hasEnded(message) || this.#following.has(message.id)) return;
    const abort = new AbortController();
    this.#following.set(message.id, abort);
    const read = this.#read[message.id];
    delete this.#read[message.id];
    if (read) {
      const { content, thinking, calls } = read;
      this.#replace({ ...message, content, thinking, tool_calls: calls });
    } else this.#replace(emptied(message));
    void this.#followed(message.id, read?.lastId ?? "", abort);
  }

  /** Keep what this tab has read, so that it goes on there when it is loaded again. */
  #keep() {
    /** @type {Record<string, import("./resumed.js").Read>} */
    const read = {};
    for (const id of this.#following.keys()) {
      const message = this.#messages.get(id);
      const lastId = this.#lastIds.get(id);
      if (!message || !lastId) continue;
      const { content, thinking = null, tool_calls: calls = [] } = message;
      read[id] = { content, thinking, calls, lastId };
    }
    keepRead(read);
  }

  /** @param {string} id @param {string} lastId @param {AbortController} abort */
  async #followed(id, lastId, abort) {
    const chatId = this.chat?.id;
    const path = `/chats/${chatId}/messages/${id}`;
    try {
      await follow(this.#client, `${path}/events`, {
        lastId,
        signal: abort.signal,
        onEvent: (event) => {
          this.#lastIds.set(id, event.id);
          return this.#takeEvent(id, JSON.parse(event.data));
        },
        onLink: (isUp) => this.#noteLink(isUp),
      });
      const message = this.#messages.get(id);
      if (!abort.signal.aborted && message && !hasEnded(message)) this.#replace(await this.#client.json(path));
    } catch (error) {
      if (!abort.signal.aborted) this.notices.fail(error);
    } finally {
      if (this.#following.get(id) === abort) this.#following.delete(id);
      this.#lastIds.delete(id);
      this.waiting.delete(id);
      this.changed();
    }
  }

  /** @param {boolean} isUp */
  #noteLink(isUp) {
    if (this.isLinked === isUp) return;
    this.isLinked = isUp;
    this.notices.speak(isUp ? "Connected again." : "The connection was lost.");
    this.changed();
  }

  /** @param {string} id @param {ChatEvent} event @returns {boolean} whether it is the last */
  #takeEvent(id, event) {
    const message = this.#messages.get(id);
    if (!message) return true;
    if (event.event_type === "pending") this.waiting.set(id, event);
    else this.waiting.delete(id);
    const next = withEvent(message, event);
    if (next !== message) this.#replace(next);
    else this.changed();
    if (!isLast(event)) return false;
    this.notices.speak(ending(next) || "The answer is complete.");
    this.#tell();
    return true;
  }

  // --- what a person does ---------------------------------------------------------------

  /**
   * Send a message and have it answered.
   * @param {{ content: string, attachments: { name: string, data: string }[] }} said
   * @param {Choice} choice
   * @param {Message | null} edited the message that this is another version of
   * @returns {Promise<boolean>} whether it was stored
   */
  async send({ content, attachments }, choice, edited = null) {
    if (this.isSending) return false;
    this.isSending = true;
    this.changed();
    let isStored = false;
    await this.notices.trying(async () => {
      const chat = this.chat ?? (await this.#create(choice));
      const parent = edited ? edited.parent_id : (this.path.findLast(({ role }) => role === "assistant")?.id ?? null);
      const message = await this.#post(chat, "prompter_message", { parent_id: parent, content, ...(attachments.length ? { attachments } : {}) });
      isStored = true;
      this.#add(message);
      await this.#answer(chat, message, choice);
    });
    this.isSending = false;
    this.changed();
    return isStored;
  }

  /**
   * Have a message answered again.
   * @param {Message} answer
   * @param {Choice} choice
   */
  async regenerate(answer, choice) {
    const { chat } = this;
    const prompt = this.#messages.get(answer.parent_id ?? "");
    if (!chat || !prompt || this.isSending) return;
    await this.notices.trying(() => this.#answer(chat, prompt, choice));
    this.changed();
  }

  /**
   * Have the last message answered, which has no answer yet.
   * @param {Message} prompt
   * @param {Choice} choice
   */
  async answer(prompt, choice) {
    const { chat } = this;
    if (chat) await this.notices.trying(() => this.#answer(chat, prompt, choice));
  }

  /** End the answer that is being written. */
  async stop() {
    const { chat, current } = this;
    if (!chat || !current) return;
    await this.notices.trying(async () => {
      const message = await this.#client.json(`/chats/${chat.id}/messages/${current.id}/stop`, { body: {} });
      if (hasEnded(message)) this.#replace(message);
    });
  }

  /**
   * Show the branch through another version of a message.
   * @param {Message} version
   */
  async choose(version) {
    this.#arrange(version.id);
    const tail = this.path.at(-1);
    for (const message of this.path) this.#follow(message);
    if (!this.chat || !tail) return;
    this.chat = { ...this.chat, active_thread_tail_message_id: tail.id };
    const body = { active_thread_tail_message_id: tail.id };
    await this.notices.trying(() => this.#client.json(`/chats/${this.chat?.id}`, { method: "PUT", body }));
  }

  /**
   * Keep settings with the chat.
   * @param {import("./chats.js").ChatSettings} settings
   */
  async configure(settings) {
    const { chat } = this;
    if (!chat) return false;
    return this.notices.trying(async () => {
      const changed = await this.#client.json(`/chats/${chat.id}`, { method: "PUT", body: { settings } });
      if (this.chat?.id === chat.id) this.chat = { ...this.chat, settings: changed.settings };
      this.changed();
    });
  }

  // --- requests -------------------------------------------------------------------------

  /** @param {Choice} choice @returns {Promise<Chat>} */
  async #create(choice) {
    const chat = await this.#client.json("/chats", { body: { settings: { model_config_name: choice.model } } });
    this.chat = chat;
    this.chats.noteChat(chat);
    history.replaceState(null, "", `#/chat/${chat.id}`);
    return chat;
  }

  /** @param {Chat} chat @param {Message} prompt @param {Choice} choice */
  async #answer(chat, prompt, choice) {
    const sampling = this.chat?.settings?.sampling_parameters;
    const answer = await this.#post(chat, "assistant_message", {
      parent_id: prompt.id,
      model_config_name: choice.model,
      ...(sampling ? { sampling_parameters: sampling } : {}),
      ...(choice.thinking === null ? {} : { thinking: choice.thinking }),
    });
    this.#add(answer);
    this.#follow(answer);
    this.#tell();
    void this.notices.trying(() => this.#readListed(chat)); // the next message need not wait for it
  }

  /** Read how a chat is listed, as by its title. @param {Chat} chat */
  async #readListed(chat) {
    const { messages: _, ...listed } = await this.#client.json(`/chats/${chat.id}`);
    if (this.chat?.id === chat.id) this.chat = { ...this.chat, ...listed };
    this.chats.noteChat(listed);
    this.changed();
  }

  /** @param {Message} message */
  #add(message) {
    this.#messages.set(message.id, message);
    this.#arrange(message.id);
  }

  /**
   * Send a message once, however often it takes.
   * @param {Chat} chat
   * @param {string} route
   * @param {object} fields
   * @returns {Promise<Message>}
   */
  async #post(chat, route, fields) {
    const body = { ...fields, id: newId() };
    for (let n = 1; ; n += 1) {
      try {
        return await this.#client.json(`/chats/${chat.id}/${route}`, { body });
      } catch (error) {
        if (!(error instanceof Failure) || error.status !== 0 || n === TRIES) throw error;
        await new Promise((resolve) => setTimeout(resolve, n * 700));
      }
    }
  }

  /** @param {import("../chat/branches.js").Attachment} attachment @returns {Promise<Blob>} */
  load = async ({ id }) => (await this.#client.ask(`/chats/${this.chat?.id}/attachments/${id}`)).blob();

  /**
   * Say whether a call of a tool may be made.
   * @param {Message} message @param {import("../chat/branches.js").ToolCall} call @param {boolean} isAllowed
   * @returns {Promise<boolean>} whether that was stored
   */
  decide = (message, call, isAllowed) =>
    this.notices.trying(() => this.#client.json(`/chats/${this.chat?.id}/messages/${message.id}/tool_calls/${encodeURIComponent(call.id)}`, { body: { allow: isAllowed } }));

  // --- other tabs -----------------------------------------------------------------------

  #tell() {
    if (this.chat) this.#tabs?.postMessage(this.chat.id);
  }

  /** @param {string} chatId that another tab has changed */
  #hear(chatId) {
    void this.chats.load();
    if (this.chat?.id === chatId) void this.refresh();
  }
}

/** @returns {string} 32 hexadecimal digits, drawn at random */
function newId() {
  const bytes = crypto.getRandomValues(new Uint8Array(16));
  return [...bytes].map((byte) => byte.toString(16).padStart(2, "0")).join("");
}
