/** Who uses the page: a token, or nobody where the kernel tells the bridge who asks. */

import { ServiceClient } from "../service/client.js";
import { Failure, say } from "../service/failure.js";
import { Store } from "./store.js";

const KEY = "inferd.token";

export class Session extends Store {
  /** @type {"looking" | "signed-out" | "signed-in"} */
  state = "looking";
  client = new ServiceClient("");
  /** @type {{ version?: string, models?: string[], max_requests?: number } | null} */
  server = null;
  /** @type {import("../service/failure.js").Said | null} */
  failure = null;
  hasToken = false;

  /** Look whether the token of last time, or none, is enough. */
  async start() {
    await this.#try(stored(), false);
  }

  /**
   * Use a token.
   * @param {string} token
   * @param {boolean} isKept also after the browser ends
   */
  async signIn(token, isKept) {
    this.state = "looking";
    this.changed();
    if (await this.#try(token.trim(), true)) keep(token.trim(), isKept);
  }

  /** Forget the token. */
  signOut() {
    keep("", false);
    this.hasToken = false;
    this.client = new ServiceClient("");
    this.state = "signed-out";
    this.failure = null;
    this.changed();
  }

  /**
   * Ask for a token again where one is refused that was good before.
   * @param {unknown} error
   * @returns {boolean} whether it was that
   */
  isRefused(error) {
    if (!(error instanceof Failure) || error.status !== 401) return false;
    this.state = "signed-out";
    this.failure = say(error);
    this.changed();
    return true;
  }

  /** @param {string} token @param {boolean} isTold @returns {Promise<boolean>} */
  async #try(token, isTold) {
    const client = new ServiceClient(token);
    try {
      this.server = await client.json("/server_info");
      this.client = client;
      this.hasToken = token !== "";
      this.failure = null;
      this.state = "signed-in";
    } catch (error) {
      const isRefusal = error instanceof Failure && error.status === 401;
      this.failure = isTold || token || !isRefusal ? say(error) : null;
      this.state = "signed-out";
    }
    this.changed();
    return this.state === "signed-in";
  }
}

/** @returns {string} */
function stored() {
  return sessionStorage.getItem(KEY) ?? localStorage.getItem(KEY) ?? "";
}

/** @param {string} token @param {boolean} isKept */
function keep(token, isKept) {
  sessionStorage.removeItem(KEY);
  localStorage.removeItem(KEY);
  if (token) (isKept ? localStorage : sessionStorage).setItem(KEY, token);
}
