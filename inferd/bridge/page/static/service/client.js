/** Asks the bridge this page came from, and nobody else. */

import { Failure } from "./failure.js";

/** Characters of an error that is shown. */
const MAX_SHOWN = 600;

/**
 * @typedef {{ method?: string, body?: unknown, form?: FormData, headers?: Record<string, string>,
 *   signal?: AbortSignal }} Options
 */

export class ServiceClient {
  /**
   * @param {string} token empty where the kernel says who asks
   * @param {typeof fetch} [send]
   */
  constructor(token, send = (...args) => fetch(...args)) {
    this.token = token;
    this.#send = send;
  }

  /** @type {typeof fetch} */
  #send;

  /**
   * Ask for something; return the response once its status is known to be good.
   * @param {string} path
   * @param {Options} [options]
   * @returns {Promise<Response>}
   * @throws {Failure} it was refused, or not reached
   */
  async ask(path, options = {}) {
    let response;
    try {
      response = await this.#send(path, this.#request(options));
    } catch (error) {
      if (options.signal?.aborted) throw error;
      throw new Failure(0, "not_reached", String(error));
    }
    if (!response.ok) throw await failureOf(response);
    return response;
  }

  /**
   * Ask for a JSON document.
   * @param {string} path
   * @param {Options} [options]
   * @returns {Promise<any>}
   */
  async json(path, options = {}) {
    const response = await this.ask(path, options);
    const text = await response.text();
    return text ? JSON.parse(text) : null;
  }

  /** @param {Options} options @returns {RequestInit} */
  #request({ method, body, form, headers, signal }) {
    const hasBody = body !== undefined;
    return {
      method: method ?? (hasBody || form ? "POST" : "GET"),
      headers: {
        ...(this.token ? { authorization: `Bearer ${this.token}` } : {}),
        ...(hasBody ? { "content-type": "application/json" } : {}),
        ...headers,
      },
      body: form ?? (hasBody ? JSON.stringify(body) : null),
      credentials: "omit",
      cache: "no-store",
      redirect: "error",
      ...(signal ? { signal } : {}),
    };
  }
}

/** @param {Response} response @returns {Promise<Failure>} */
async function failureOf(response) {
  const text = await response.text().catch(() => "");
  const retry = Number(response.headers.get("retry-after"));
  const { code, message } = read(text);
  return new Failure(
    response.status,
    code,
    (message || `the service answered ${response.status}`).slice(0, MAX_SHOWN),
    retry > 0 ? retry : null,
  );
}

/** @param {string} text @returns {{ code: string, message: string }} */
function read(text) {
  try {
    const body = JSON.parse(text);
    const error = body.error ?? body.detail ?? body;
    if (typeof error === "string") return { code: "", message: error };
    return { code: String(error.code ?? ""), message: String(error.message ?? "") };
  } catch {
    return { code: "", message: "" };
  }
}
