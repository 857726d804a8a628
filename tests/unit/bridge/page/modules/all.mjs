// All tests of the page's modules, in one process.
import "./text.mjs";
import "./service.mjs";
import "./chat.mjs";
import "./media.mjs";
import "./status.mjs";
