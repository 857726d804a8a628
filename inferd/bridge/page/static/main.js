/** Puts the page together. */

import { h, render } from "./vendor/preact.mjs";
import { Chats } from "./state/chats.js";
import { Conversation } from "./state/conversation.js";
import { Machine } from "./state/machine.js";
import { Notices } from "./state/notices.js";
import { Session } from "./state/session.js";
import { App } from "./view/app.js";

const session = new Session();
const notices = new Notices(session);
const chats = new Chats(session, notices);
const conversation = new Conversation(session, notices, chats);
const machine = new Machine(session, notices);

render(
  h(App, { session, notices, chats, conversation, machine }),
  /** @type {HTMLElement} */ (document.getElementById("page")),
);
