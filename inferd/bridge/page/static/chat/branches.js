/** The messages of a chat as a tree, and the one branch of it that is shown. */

/**
 * @typedef {{ input_tokens: number, output_tokens: number, cached_tokens?: number,
 *   tokens_per_second?: number | null }} Usage
 * @typedef {{ n_left_out: number, first_kept?: string | null, summary?: string | null }} LeftOut
 * @typedef {{ id: string, name: string, input: unknown, state?: string, result?: string | null }} ToolCall
 * @typedef {{ id: string, name: string, media_type: string, n_bytes: number }} Attachment
 * @typedef {{
 *   id: string, parent_id: string | null, chat_id: string, role: "prompter" | "assistant",
 *   content: string, created_at: string, state: string, thinking?: string | null,
 *   tool_calls?: ToolCall[], finish_reason?: string | null, usage?: Usage | null,
 *   error?: { code: string, message: string } | null, context?: LeftOut | null,
 *   work_parameters?: { model_config?: { name?: string } } | null,
 *   attachments?: Attachment[], notes?: string[], safety_label?: string | null, safety_rots?: string | null,
 * }} Message
 */

export class Branches {
  /** @type {Map<string | null, Message[]>} */
  #children = new Map();
  /** @type {Map<string, Message>} */
  #byId = new Map();

  /** @param {Iterable<Message>} messages oldest first */
  constructor(messages) {
    for (const message of messages) {
      this.#byId.set(message.id, message);
      const siblings = this.#children.get(message.parent_id) ?? [];
      siblings.push(message);
      this.#children.set(message.parent_id, siblings);
    }
  }

  /**
   * Return the branch through a message: from the first one to the newest that follows it.
   * @param {string | null} through the newest message of all where it is not known
   * @returns {Message[]}
   */
  path(through) {
    let message = this.#byId.get(through ?? "") ?? [...this.#byId.values()].at(-1);
    if (!message) return [];
    const path = [];
    const seen = new Set();
    for (let at = /** @type {Message | undefined} */ (message); at && !seen.has(at.id); ) {
      seen.add(at.id);
      path.push(at);
      at = at.parent_id === null ? undefined : this.#byId.get(at.parent_id);
    }
    path.reverse();
    for (let next = this.#newestChild(message.id); next && !seen.has(next.id); next = this.#newestChild(next.id)) {
      seen.add(next.id);
      path.push(next);
    }
    return path;
  }

  /** @param {string} id @returns {Message | undefined} */
  #newestChild(id) {
    return this.#children.get(id)?.at(-1);
  }

  /**
   * Return the versions that a message is one of: all with its parent.
   * @param {Message} message
   * @returns {Message[]}
   */
  versions(message) {
    return this.#children.get(message.parent_id) ?? [message];
  }
}
