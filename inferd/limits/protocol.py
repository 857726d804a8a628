"""Bounds of requests and responses that the wire protocol defines, and its defaults."""

from typing import Final

from inferd.limits.models import MODEL_NAME_MAX_CHARS

MAX_FRAME_BYTES: Final = 64 * 1024 * 1024
"""Bytes of one line without its newline, in both directions: requests, and answers; the
protocol's own cap. Messages between processes, the lines of waiting requests and unread
answers have twice as many bytes (``MAX_IPC_MESSAGE_BYTES``, ``JOB_ANSWER_BYTES``,
``MAX_QUEUED_BYTES``, ``MAX_UNREAD_BYTES``), so that the largest line fits. F-1."""

MAX_ID_CHARS: Final = 128 * 1024
"""Characters of a request's id, which is repeated on every frame of its answer. F-1."""

MAX_MODEL_CHARS: Final = MODEL_NAME_MAX_CHARS
"""Characters of a request's ``model``: those of the longest name of a model."""

MAX_PRINCIPAL_CHARS: Final = 128
"""Characters of a request's ``principal``: a name of a person, a token or a program, with its
domain. It is in the log line of each request. F-46."""

MAX_VIA: Final = 8
"""Daemons that may pass a request on, one to the next: each holds a place in its queue and a
copy of the request for as long as the answer takes. F-56."""

MAX_VIA_CHARS: Final = 64
"""Characters of a daemon's id in ``via``; ours have twice ``INSTANCE_BYTES``."""

INSTANCE_BYTES: Final = 8
"""Random bytes of a daemon's id in ``via``: two daemons never draw the same one."""

MAX_LISTED_MODELS: Final = 32
"""Names of models in one ``model_not_found`` or one refusal of an admin command: more than people read, in at most 4 KiB. A name
has up to 128 characters, and backends and aliases may be many. F-1."""

MAX_DESCRIBED_MODELS: Final = 1024
"""Models in the answer to one ``describe`` line: more than a machine serves, in at most a few
MiB, which take milliseconds to encode. Of those left out their number is told. F-51."""

NO_MODEL: Final = "?"
"""A ``model`` that none can be called: a request that names it asks which names there are, and
its refusal is no failure."""

MAX_UNKNOWN_FIELDS: Final = 8
"""Unknown fields of a strict request that its refusal names: who reads it mends these first. The
search ends with the next one. F-1."""

MAX_UNKNOWN_FIELD_CHARS: Final = 64
"""Characters of an unknown field's name in that text; it may be as long as a frame. F-1."""

STRICT_OBJECTS: Final = 384 * 1024
"""Objects and arrays of a strict request that are searched for unknown fields, in a second:
more than messages, their content, blocks and tools can be in a request that is not refused for
their number. F-35."""

MAX_ERROR_CHARS: Final = 1024
"""Characters of an error message, since a refused value may be as long as a frame. F-1."""

MAX_MESSAGES: Final = 65_536
"""Messages of one conversation. Each one costs the chat template time and takes several
tokens of the context. F-1."""

MAX_BLOCKS: Final = 65_536
"""Content blocks of one request, nested blocks included. F-1."""

MAX_BLOCK_DEPTH: Final = 16
"""Nesting depth of ``tool_result`` blocks. F-1."""

MAX_COMMAND_BYTES: Final = 64 * 1024
"""Bytes of one line on the admin socket."""

REPEATS_CHECKED_BYTES: Final = 1024 * 1024
"""Bytes of the longest line that is searched for duplicate fields. The search decodes the
line slowly and blocks the event loop for up to 0.1 s per MiB (measured)."""

U32_MAX: Final = 2**32 - 1
"""Largest value of the protocol's unsigned integers."""

GRAMMAR_MAX_BYTES: Final = 64 * 1024
"""Bytes of UTF-8 in one grammar, pattern or schema; set by the protocol. F-11."""

GRAMMAR_MAX_ALTERNATIVES: Final = 4096
"""``|`` bytes in one GBNF grammar: alternatives multiply the parser's stacks. F-11."""

TOOLS_MAX_BYTES: Final = 2 * 1024 * 1024
"""Bytes of UTF-8 in all tools of a request: names, descriptions and schemas. In a prompt
they would be over half a million tokens. F-11."""

IMAGE_TOKEN_BUDGETS: Final = (70, 140, 280, 560, 1120)
"""Allowed values of ``image_token_budget``, in tokens."""

MAX_TOOL_CALLS: Final = 128
"""Calls of one answer. A grammar allows no more, and more that a model generates freely are
text: a small model may repeat its calls until ``max_tokens``, and clients run each. F-11."""

TOOL_NAME_MAX_CHARS: Final = 256
"""Characters of a tool's name: four times what other servers allow. Text that begins like a
call is held back until the name of the tool is known."""

MAX_ATTACHMENTS: Final = 32
"""Attachments of one request; set by the protocol."""

MAX_ATTACHMENT_BYTES: Final = 128 * 1024 * 1024
"""Bytes of base64 in all attachments of one request; set by the protocol. A line holds less. F-1."""

MAX_JOB_MEDIA: Final = 64
"""Media blocks of one conversation; a file that is used twice counts twice. Each is a
descriptor of its own on the way to a worker, and the kernel passes at most 253 at once. F-30."""

MAX_INPUT_TOKENS: Final = 1024 * 1024
"""Token ids in ``input_tokens`` of one request: as many as the largest contexts of models
have. A line could hold thirty times as many, of which a worker would make a list. F-1."""

MAX_STOPS: Final = 16
"""Stop strings of one request: all are searched for in every piece of the answer."""

MAX_STOP_BYTES: Final = 256
"""Bytes of one stop string: up to that many bytes of an answer may be held back."""

MAX_STOP_TOKENS: Final = 64
"""Stop tokens of one request; a model has a handful of them."""

MAX_LOGIT_BIASES: Final = 1024
"""Tokens with a logit bias in one request: all of them are visited for every token."""

MAX_LOGPROBS: Final = 20
"""Alternatives reported for each token; the usual bound of this field."""

MAX_PRIORITY: Final = 10
"""Highest priority; the lowest is its negative."""

MAX_EMBED_INPUTS: Final = 2048
"""Texts of one embed request; the usual bound of this field."""

EMBED_NUMBER_BYTES: Final = 24
"""Most bytes that one number of a vector takes on the wire."""

MAX_RERANK_DOCUMENTS: Final = 256
"""Documents of one rerank request; set by the protocol."""

MAX_RERANK_BYTES: Final = 8 * 1024 * 1024
"""Bytes of UTF-8 of a query and its documents; set by the protocol."""

TEMPERATURE_MAX: Final = 2.0
"""Highest temperature. Above 2 the choice is close to uniform, so the value is a mistake."""

DEFAULT_TEMPERATURE: Final = 1.0
"""Temperature unless the request or the model sets it; set by the protocol."""

DEFAULT_TOP_P: Final = 0.95
"""``top_p`` unless the request or the model sets it; set by the protocol."""

DEFAULT_TOP_K: Final = 64
"""``top_k`` unless the request or the model sets it; set by the protocol."""

DEFAULT_MAX_TOKENS: Final = 1000
"""Tokens of an answer unless the request sets ``max_tokens``; set by the protocol."""
