/** The list of chats, what a search found, and the models that may be asked. */

import { Failure } from "../service/failure.js";
import { Store } from "./store.js";

const PAGE = 50;
const FOUND = 30;
/** Statuses of a bridge that keeps no chats. */
const NOT_OFFERED = new Set([404, 501]);

/**
 * @typedef {{ temperature?: number, top_p?: number, top_k?: number,
 *   repetition_penalty?: number, max_new_tokens?: number }} Sampling
 * @typedef {{ context?: "omit" | "summarise" | "refuse", model_config_name?: string,
 *   system_prompt?: string, sampling_parameters?: Sampling, tool_servers?: string[] }} ChatSettings
 * @typedef {{ name: string, is_default: boolean, error?: string | null,
 *   tools: { name: string, description: string, is_allowed: boolean }[] }} ToolServer
 * @typedef {{ id: string, title: string | null, modified_at: string, hidden?: boolean,
 *   active_thread_tail_message_id?: string | null, settings?: ChatSettings,
 *   messages?: import("../chat/branches.js").Message[] }} Chat
 * @typedef {{ chat_id: string, message_id: string, title: string | null, excerpt: string }} Hit
 * @typedef {{ name: string, description?: string, n_ctx?: number | null, state?: string | null,
 *   thinking?: boolean | null, images?: boolean | null, audio?: boolean | null }} Model
 */

export class Chats extends Store {
  /** @type {Chat[]} */
  chats = [];
  /** @type {string | null} */
  next = null;
  /** @type {Model[]} */
  models = [];
  query = "";
  /** @type {Hit[] | null} */
  hits = null;
  isLoaded = false;
  /** @type {string | null} why this bridge keeps no chats, if so */
  notOffered = null;
  #search = 0;

  /**
   * @param {import("./session.js").Session} session
   * @param {import("./notices.js").Notices} notices
   */
  constructor(session, notices) {
    super();
    this.session = session;
    this.notices = notices;
  }

  get #client() {
    return this.session.client;
  }

  /** Read the list anew, and the models. */
  async load() {
    await this.notices.trying(async () => {
      try {
        const [{ chats, next }, models] = await Promise.all([
          this.#client.json(`/chats?limit=${PAGE}`),
          this.#client.json("/configs/model_configs"),
        ]);
        this.chats = chats;
        this.next = next;
        this.models = models;
        this.notOffered = null;
      } catch (error) {
        if (!(error instanceof Failure) || !NOT_OFFERED.has(error.status)) throw error;
        this.notOffered = error.message;
      }
    });
    this.isLoaded = true;
    this.changed();
  }

  /** @returns {Promise<ToolServer[]>} the servers whose tools answers may call */
  async toolServers() {
    /** @type {ToolServer[]} */
    let found = [];
    await this.notices.trying(async () => {
      found = await this.#client.json("/configs/tool_servers");
    });
    return found;
  }

  /** Read the states of the models anew. */
  async loadModels() {
    await this.notices.trying(async () => {
      this.models = await this.#client.json("/configs/model_configs");
    });
    this.changed();
  }

  /** Read the next part of the list. */
  async loadMore() {
    if (!this.next) return;
    const after = encodeURIComponent(this.next);
    await this.notices.trying(async () => {
      const { chats, next } = await this.#client.json(`/chats?limit=${PAGE}&after=${after}`);
      const known = new Set(this.chats.map(({ id }) => id));
      this.chats = [...this.chats, ...chats.filter((/** @type {Chat} */ { id }) => !known.has(id))];
      this.next = next;
    });
    this.changed();
  }

  /**
   * Search all chats.
   * @param {string} query
   */
  async search(query) {
    this.query = query;
    this.#search += 1;
    const number = this.#search;
    if (!query.trim()) this.hits = null;
    this.changed();
    if (!query.trim()) return;
    await this.notices.trying(async () => {
      const { hits } = await this.#client.json(`/chats/search?q=${encodeURIComponent(query)}&limit=${FOUND}`);
      if (number === this.#search) this.hits = hits;
    });
    this.changed();
  }

  /**
   * Put a chat first in the list.
   * @param {Chat} chat
   */
  noteChat(chat) {
    this.chats = [chat, ...this.chats.filter(({ id }) => id !== chat.id)];
    this.changed();
  }

  /**
   * Give a chat another name.
   * @param {string} id
   * @param {string} title
   */
  async rename(id, title) {
    await this.notices.trying(async () => {
      const chat = await this.#client.json(`/chats/${id}`, { method: "PUT", body: { title } });
      this.chats = this.chats.map((each) => (each.id === id ? { ...each, title: chat.title } : each));
    });
    this.changed();
  }

  /**
   * Delete a chat.
   * @param {string} id
   * @returns {Promise<boolean>} whether it is gone
   */
  async remove(id) {
    const isGone = await this.notices.trying(() => this.#client.json(`/chats/${id}`, { method: "DELETE" }));
    if (isGone) this.chats = this.chats.filter((each) => each.id !== id);
    this.changed();
    return isGone;
  }

  /** @param {string | null | undefined} name @returns {Model | undefined} */
  model(name) {
    return this.models.find((each) => each.name === name);
  }
}
