/** The settings of one chat. */

import { Component } from "../vendor/preact.mjs";
import { visible } from "../text/controls.js";
import { Dialog } from "./dialog.js";
import { html } from "./html.js";

/**
 * @typedef {import("../state/chats.js").ChatSettings} ChatSettings
 * @typedef {{ name: keyof import("../state/chats.js").Sampling, label: string, hint: string,
 *   min: string, max: string, step: string, placeholder: string }} SamplingField
 */

/** @type {SamplingField[]} */
const SAMPLING = [
  { name: "temperature", label: "Temperature", hint: "0 gives the likeliest word each time", min: "0", max: "2", step: "0.05", placeholder: "of the model" },
  { name: "top_p", label: "Top p", hint: "share of likely words that are drawn from", min: "0.01", max: "1", step: "0.01", placeholder: "of the model" },
  { name: "top_k", label: "Top k", hint: "number of likely words that are drawn from", min: "1", max: "1000", step: "1", placeholder: "of the model" },
  { name: "repetition_penalty", label: "Repetition penalty", hint: "above 1 avoids what was said", min: "0.5", max: "2", step: "0.05", placeholder: "none" },
  { name: "max_new_tokens", label: "Greatest length", hint: "tokens of an answer", min: "1", max: "1000000", step: "1", placeholder: "of the machine" },
];

/** @type {[NonNullable<ChatSettings["context"]>, string][]} */
const CONTEXT = [
  ["omit", "Leave out the oldest messages"],
  ["summarise", "Summarise the oldest messages"],
  ["refuse", "Write no answer, and say so"],
];

/**
 * Return the settings that a form has.
 * @param {FormData} form
 * @param {ChatSettings} before
 * @returns {ChatSettings}
 */
export function settingsOf(form, before) {
  /** @type {import("../state/chats.js").Sampling} */
  const sampling = {};
  for (const { name } of SAMPLING) {
    const value = String(form.get(name) ?? "").trim();
    if (value !== "") sampling[name] = Number(value);
  }
  const prompt = String(form.get("system_prompt") ?? "").trim();
  const context = /** @type {ChatSettings["context"]} */ (String(form.get("context") ?? "omit"));
  return {
    ...(before.model_config_name ? { model_config_name: before.model_config_name } : {}),
    ...(context ? { context } : {}),
    ...(prompt ? { system_prompt: prompt } : {}),
    ...(Object.keys(sampling).length ? { sampling_parameters: sampling } : {}),
    ...(form.has("has_tools")
      ? { tool_servers: form.getAll("tool_server").map(String) }
      : before.tool_servers ? { tool_servers: before.tool_servers } : {}),
  };
}

/**
 * @typedef {import("../state/chats.js").ToolServer} ToolServer
 * @typedef {{ settings: ChatSettings, servers: ToolServer[], close: () => void, save: (settings: ChatSettings) => void }} Props
 * @extends {Component<Props>}
 */
export class SettingsDialog extends Component {
  /** @param {SubmitEvent & { currentTarget: HTMLFormElement }} event */
  #submit = (event) => {
    event.preventDefault();
    this.props.save(settingsOf(new FormData(event.currentTarget), this.props.settings));
  };

  render() {
    const { settings, close } = this.props;
    return html`
      <${Dialog} title="Settings of this chat" close=${close}>
        <form onSubmit=${this.#submit}>
          <label class="field">
            Instructions for the model
            <textarea name="system_prompt" rows="4" placeholder="None">${settings.system_prompt ?? ""}</textarea>
          </label>
          <label class="field">
            When the context is full
            <select name="context">
              ${CONTEXT.map(([value, text]) => html`<option value=${value} selected=${value === (settings.context ?? "omit")}>${text}</option>`)}
            </select>
            <span class="hint">What the model was not shown is marked.</span>
          </label>
          ${this.#tools()}
          <div class="grid">${SAMPLING.map((field) => this.#number(field))}</div>
          <div class="buttons">
            <button class="primary">Keep</button>
            <button type="button" onClick=${close}>Cancel</button>
          </div>
        </form>
      <//>
    `;
  }

  #tools() {
    const { servers, settings } = this.props;
    if (servers.length === 0) return null;
    const isChosen = (/** @type {ToolServer} */ server) => settings.tool_servers?.includes(server.name) ?? server.is_default;
    return html`
      <fieldset class="field">
        <legend>Tools that answers may call</legend>
        <input type="hidden" name="has_tools" value="1" />
        ${servers.map((server) => html`
          <label class="check"><input type="checkbox" name="tool_server" value=${server.name} checked=${isChosen(server)} /> ${server.name}</label>
          <span class="hint">${visible(server.error ?? server.tools.map(({ name, is_allowed: isAllowed }) => (isAllowed ? name : `${name} (asks first)`)).join(", "))}</span>`)}
      </fieldset>
    `;
  }

  /** @param {SamplingField} field */
  #number({ name, label, hint, min, max, step, placeholder }) {
    const value = this.props.settings.sampling_parameters?.[name] ?? "";
    return html`
      <label class="field">
        ${label}
        <input type="number" name=${name} value=${value} min=${min} max=${max} step=${step} placeholder=${placeholder} aria-describedby=${`hint-${name}`} />
        <span class="hint" id=${`hint-${name}`}>${hint}</span>
      </label>
    `;
  }
}
