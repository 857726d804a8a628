/** Where a token is asked for. */

import { html, Watching } from "./html.js";

/**
 * @typedef {{ session: import("../state/session.js").Session }} Props
 * @extends {Watching<Props>}
 */
export class SignIn extends Watching {
  watched() {
    return [this.props.session];
  }

  /** @param {SubmitEvent & { currentTarget: HTMLFormElement }} event */
  #submit = (event) => {
    event.preventDefault();
    const form = new FormData(event.currentTarget);
    void this.props.session.signIn(String(form.get("token")), form.get("keep") !== null);
  };

  render() {
    const { state, failure } = this.props.session;
    if (state === "looking") return html`<main class="sign-in"><p class="progress"><span class="busy">Connecting</span></p></main>`;
    return html`
      <main class="sign-in">
        <form onSubmit=${this.#submit}>
          <h1>inferd</h1>
          <p>This machine answers those who have a token.</p>
          ${failure ? html`<div class="notice" role="alert"><strong>${failure.what}</strong> ${failure.todo}</div>` : null}
          <label class="field">
            Token
            <input type="password" name="token" required autofocus autocomplete="current-password" spellcheck="false" placeholder="inferd-…" />
          </label>
          <label class="check"><input type="checkbox" name="keep" /> Stay signed in on this device</label>
          <button class="primary">Sign in</button>
          <p class="hint">The operator of the machine makes one with <code>inferd bridge token add NAME</code>.</p>
        </form>
      </main>
    `;
  }
}
