"""Every bound the daemon keeps: value, unit, reason, and the threat it answers.

Those an operator may want to move are defaults of settings in ``config.py``; the
rest are part of the protocol or of the design.
"""

from typing import Final

# --- the wire ---------------------------------------------------------------

MAX_FRAME_BYTES: Final = 64 * 1024 * 1024
"""Bytes of one line without its newline; the wire's own cap. F-1."""

MAX_ID_CHARS: Final = 128 * 1024
"""Characters of a request's id, which is repeated on every frame of its answer. F-1."""

MAX_ERROR_CHARS: Final = 1024
"""Characters of an error's message: a refused value may be as long as a frame. F-1."""

READ_AHEAD_REQUESTS: Final = 64
"""Requests read from a connection while an earlier one is answered, so that a cancel
behind them is heard; further ones wait in the kernel's buffer. F-1."""

READ_AHEAD_BYTES: Final = 1024 * 1024
"""Bytes of such requests; a larger one waits until it is next. F-1."""

MAX_MESSAGES: Final = 65_536
"""Turns of one conversation: each costs a chat template's time, and several tokens of
the context. F-1."""

MAX_BLOCKS: Final = 65_536
"""Content blocks of one request, nested ones among them. F-1."""

MAX_BLOCK_DEPTH: Final = 16
"""Levels of ``tool_result`` blocks in one another. F-1."""

MAX_COMMAND_BYTES: Final = 64 * 1024
"""Bytes of one line on the admin socket."""

REPEATS_CHECKED_BYTES: Final = 1024 * 1024
"""Bytes of the longest line that is searched for repeated fields. The slow reading that
this takes blocks the loop for a tenth of a second a MiB at worst (measured)."""

U32_MAX: Final = 2**32 - 1
"""Largest value of the wire's unsigned integers."""

GRAMMAR_MAX_BYTES: Final = 64 * 1024
"""Bytes of UTF-8 in one grammar, pattern or schema; the wire's bound. F-11."""

GRAMMAR_MAX_ALTERNATIVES: Final = 4096
"""``|`` bytes in one GBNF grammar: alternatives multiply the parser's stacks. F-11."""

TOOLS_MAX_BYTES: Final = 2 * 1024 * 1024
"""Bytes of UTF-8 in all tools of a request: names, descriptions and schemas. As a prompt
that is over half a million tokens. F-11."""

EFFORT_STEPS: Final = 500_000
"""Nodes and characters that a translation may visit and write in any case. F-11."""

EFFORT_STEPS_PER_BYTE: Final = 16
"""Of these for each byte of what is translated: schemas that people write are read three
times, and written twice. F-11."""

WRITTEN_CHARS: Final = 16_384
"""Characters of a prompt beside what is written of what was sent: a template's own words,
some 2,000 as a rule, and several times as many where it has a long system prompt. F-11."""

WRITTEN_CHARS_PER_CHAR: Final = 8
"""Characters of a prompt for each that was sent: JSON that is indented takes three times as
many as a rule, and control characters six times. F-11."""

WRITTEN_ITEM_CHARS: Final = 24
"""Characters that a turn, a call or a tool counts as beside its texts: the shortest takes
more of a request. F-11."""

EFFORT_READING: Final = 100_000
"""Of these to read one call that a model has written by its tool's schema, on the daemon's
loop: a tenth of a second at worst. F-11."""

IMAGE_TOKEN_BUDGETS: Final = (70, 140, 280, 560, 1120)
"""The values ``image_token_budget`` may take, in tokens."""

TOOL_NAME_MAX_CHARS: Final = 256
"""Characters of a tool's name: four times what others allow. What begins like a call is
held back until its name is known."""

MAX_ATTACHMENTS: Final = 32
"""Attachments of one request; the wire's number."""

MAX_ATTACHMENT_BYTES: Final = 128 * 1024 * 1024
"""Bytes of all attachments of one request, as they stand in it. F-1."""

MAX_JOB_MEDIA: Final = 64
"""Media that one conversation shows, one that is shown twice counted twice: each is a
descriptor of its own on the way to a worker, and the kernel takes 253 at once. F-30."""

MAX_STOPS: Final = 16
"""Stop strings of one request: each is looked for in every piece of the answer."""

MAX_STOP_BYTES: Final = 256
"""Bytes of one stop string: as much of an answer may be held back."""

MAX_STOP_TOKENS: Final = 64
"""Stop tokens of one request; a model has a handful of them."""

MAX_LOGIT_BIASES: Final = 1024
"""Tokens of one request whose score is changed; all are visited for every token."""

MAX_LOGPROBS: Final = 20
"""Alternatives told for each token; the field's usual bound."""

MAX_PRIORITY: Final = 10
"""Highest priority; the lowest is its negative."""

MAX_EMBED_INPUTS: Final = 2048
"""Texts of one embed request; the field's usual bound."""

EMBED_NUMBER_BYTES: Final = 24
"""Bytes one number of a vector takes on the wire, at most."""

MAX_RERANK_DOCUMENTS: Final = 256
"""Documents of one rerank request; the wire's number."""

MAX_RERANK_BYTES: Final = 8 * 1024 * 1024
"""Bytes of UTF-8 of a query and its documents; the wire's number."""

TEMPERATURE_MAX: Final = 2.0
"""Above 2 the choice is close to uniform: such a value is a mistake, not a wish."""

READ_BYTES: Final = 64 * 1024
"""Bytes asked of a socket at once; a pipe's worth, small beside a frame."""

WRITE_BYTES: Final = 64 * 1024
"""Bytes of frames that are made to be written at once, unless one is larger: more than
that would have to wait for most clients anyway."""

# --- admission (settings: [admission]) -------------------------------------

MAX_QUEUED: Final = 10
"""Requests that wait; the wire's default queue depth."""

MAX_QUEUED_TOKENS: Final = 256 * 1024
"""Tokens of the prompts and texts that wait: some minutes of work, at the thousand tokens
a second that a small model reads on two cores."""

MAX_QUEUED_BYTES: Final = 2 * MAX_FRAME_BYTES
"""Bytes of the lines of requests that wait: two of the largest, which are held several
times over as text, as a job and on its way to a worker. F-1."""

QUANTUM_S: Final = 2.0
"""Seconds for which a permit is kept before it may be taken back for another user: what a
person who waits for a first token bears, and long enough that saving and restoring a state
(some 50 ms for 8,192 tokens of the embedded chat model) takes a few per cent of it. F-34."""

QUANTUM_MIN_S: Final = 0.1
"""Least that may be configured: with less, more time goes into changing than into work."""

MAX_LIVE_RECORDINGS: Final = 16
"""Requests of one user to which sound is appended, whether or not there is any: a person
has one microphone, a meeting ten. Each has an open file and sound in memory. F-34."""

SILENT_S: Final = 1.5
"""Seconds after which a request that waits for more sound gives its permit back: longer
than a second, in which who speaks sends the next one. F-34."""

RETRY_AFTER_MIN_MS: Final = 10
"""Shortest time after which one who was refused is told to try again: less is a loop."""

RETRY_AFTER_MAX_MS: Final = 60_000
"""Longest such time: nothing is known of what happens in a minute."""

MAX_ACTIVE_DEFAULT_CAP: Final = 4
"""Most requests that run at once unless the operator says otherwise.

Each one reserves a context's worth of KV cache (190 MB for the embedded chat model at
8,192 tokens), so the default stays small.
"""

MEMORY_RESERVE_BYTES: Final = 512 * 1024 * 1024
"""Bytes of the memory available at the start that are left free (setting: [memory]): for
other programs, and for what requests take while they are prepared."""

MIN_FITTED_CONTEXT_TOKENS: Final = 2048
"""Tokens to which a context that nobody has set may shrink to fit the memory. With less a
chat hardly works; who wants that can set it."""

MAX_SEQUENCES: Final = 256
"""Most requests that can run at once: llama.cpp's own bound (``LLAMA_MAX_SEQ``)."""

MAX_THREADS: Final = 512
"""Most threads for decoding: ggml's own bound (``GGML_MAX_N_THREADS``)."""

# --- connections (settings: [limits]) --------------------------------------

MAX_CONNECTIONS: Final = 1024
"""Clients connected at once over all inference sockets. A connection costs some 40 kB."""

MAX_UID_RANGES: Final = 1024
"""Ranges of uids that the configuration names; directories have them by the dozen. F-36."""

MAX_ADMIN_CONNECTIONS: Final = 64
"""Listeners on the admin socket at once: counted apart, so that it answers under load."""

IDLE_S: Final = 600.0
"""Seconds after which a connection that asks nothing may be closed, where places are
short: longer than people think between two questions. F-28."""

LINE_TIMEOUT_S: Final = 60.0
"""Seconds from the first byte of a line to its last: a program that has one ready sends even
64 MiB in less than one. F-28."""

LARGE_LINE_BYTES: Final = 128 * 1024
"""Bytes of an unfinished line from which on it is read in its turn: prompts of some 30,000
tokens are read at once, and what 1,024 clients begin takes 128 MiB. F-28."""

MAX_LARGE_LINES: Final = 4
"""Larger lines that are read at once, over all connections: each may become 64 MiB, so
they take 256 MiB at most. F-28."""

WRITE_TIMEOUT_S: Final = 60.0
"""Seconds one write may take before a client that stopped reading is dropped. F-17."""

MAX_UNREAD_BYTES: Final = 2 * MAX_FRAME_BYTES
"""Bytes of finished answers that clients have yet to read: two of the largest, or thousands
of chats. They hold no permit. F-17."""

MAX_MEDIA_BYTES: Final = 256 * 1024 * 1024
"""Bytes of pixels and sound that the daemon itself holds decoded: those of five of the
largest lines, or fifteen live recordings. F-30."""

MAX_PASSED_BYTES: Final = 1024 * 1024 * 1024
"""Bytes of the descriptors that come with one request: four hours of sound. They are the
client's own memory, but a worker reads them all. F-30."""

MAX_APPENDED_BYTES: Final = 24 * 3600 * 16_000 * 4
"""Bytes of sound that one request may append in all: a day of it, at 16 kHz. What is read is
forgotten. F-30."""

MAX_AUDIO_AHEAD_BYTES: Final = 16 * 1024 * 1024
"""Bytes of appended sound that wait to be read: four minutes of it; more waits at the
client. F-30."""

MIN_AUDIO_AHEAD_BYTES: Final = 4 * 1024 * 1024
"""Least that may be configured: a model reads half a minute of sound at once, 2 MB, and
would wait for ever for more than there is room for."""

DRAIN_S: Final = 15.0
"""Seconds that running and queued requests get after SIGTERM."""

LISTEN_BACKLOG: Final = 1024
"""Connections the kernel holds before accept: as many as there are places. It is first come,
first served, so who fills it makes others wait until all are accepted, some 30 ms; a full
one fails clients that do not wait with EAGAIN. F-35."""

ADMIN_LISTENER_EVENTS: Final = 256
"""Events one admin listener may lag behind before it gets EOF; the wire's number."""

SOCKET_PATH_BYTES: Final = 107
"""Longest AF_UNIX path on Linux, without its final NUL."""

# --- engine and worker (settings: [limits]) --------------------------------

MAX_IPC_MESSAGE_BYTES: Final = 2 * MAX_FRAME_BYTES
"""Bytes of one message between daemon and worker: the largest request, re-encoded."""

IPC_OUTBOX_MESSAGES: Final = 4096
"""Messages that may wait for a worker that does not read. Over it, the worker hangs:
each request has four there at most, so this is a thousand of them."""

IPC_CHATTER_MESSAGES: Final = 50_000
"""Words of a worker about no open job that are borne at once: what was on its way when a
job was dropped, at most a full pipe for each of them. F-25."""

IPC_CHATTER_PER_S: Final = 10_000
"""Such words a second that are borne for good. A worker that beats says one in two
seconds. F-25."""

JOB_ANSWER_BYTES: Final = 2 * MAX_FRAME_BYTES
"""Bytes that a worker may say of one job, with ``JOB_ITEM_BYTES`` for each thing said; more
where log probabilities are wanted. A million tokens take half of it. F-25."""

JOB_ITEM_BYTES: Final = 64
"""Bytes that one thing said of a job counts for, beside its text. F-25."""

IPC_ITEMS_MAX: Final = 65_536
"""Things that one message of a worker's lists: a step's are some for each of its slots. Of a
message of ``MAX_IPC_MESSAGE_BYTES`` that is all list gigabytes would be made. F-25."""

LOAD_MESSAGES: Final = 1_000_000
"""Words of a worker that loads, after which it is taken to do nothing else: hashing a
terabyte takes 131,072. F-25."""

WORKER_SILENCE_S: Final = 60.0
"""Seconds without a word from a ready worker, or without any progress while it runs jobs,
before it counts as hung. It speaks after each decode step (at most 512 tokens, 2 s of
reading prompts as a rule; half a minute of sound, 1 to 20 s with small models) and every
``HEARTBEAT_S`` when idle. A model that takes longer for that needs a larger one. F-9, F-25."""

LOAD_SILENCE_S: Final = 300.0
"""Seconds without progress while a worker loads: a cold disk at 50 MB/s reads 15 GB."""

HEARTBEAT_S: Final = 2.0
"""Seconds between an idle worker's signs of life."""

HEARTBEATS_IN_SILENCE: Final = 4
"""Signs of life that must be missed before a worker counts as hung, however short the
silence that is allowed."""

PREPARE_TIMEOUT_S: Final = 30.0
"""Seconds one prompt may take to be rendered and tokenised. Over it the worker is
killed: a template cannot be interrupted otherwise."""

MAX_PREPARES: Final = 3
"""Times one request is prepared anew because its worker died; then it is refused."""

PLAIN_TURNS: Final = 64
"""Turns of a prompt that a worker writes itself: all others are written in a process that
can be stopped. Work by the square of so few is negligible. F-11."""

PLAIN_CHARS: Final = 64 * 1024
"""Characters of such a prompt: rendering them takes some milliseconds. F-11."""

WRITING_TIMEOUT_S: Final = 5.0
"""Seconds in which one prompt has to be written and its grammar tried, all times that this
is done, before the process that does it is replaced. It may take 3 s of the processor
(``WRITE_TOTAL_S``), which may be busy with other things. F-11."""

WRITES_MAX: Final = 2
"""Times that one prompt is written where the process that does it was killed. F-11."""

PREPARER_STARTS_MAX: Final = 2
"""Times that this process is started where it ends before it is ready. F-11."""

VOCABULARY_MAX_BYTES: Final = 64 * 1024 * 1024
"""Bytes of a vocabulary that a worker tells: some 3 MiB for 262,144 tokens. F-25."""

GRAMMARS_REMEMBERED: Final = 32
"""Grammars of one user that are known to compile soon and are not tried again. F-32."""

OWNERS_REMEMBERED: Final = 256
"""Users whose grammars are remembered, 32 bytes each; who has asked last is kept. F-32."""

TEMPLATE_OUTPUT_CHARS: Final = 64 * 1024 * 1024
"""Characters a chat template may produce: no request is larger than a frame."""

TEMPLATE_NUMBER_BITS: Final = 4096
"""Bits of the whole numbers that a chat template may multiply, divide or raise to a power,
and of what comes of it: templates count turns. F-18."""

SPELLED_TOKENS: Final = 65_536
"""Special tokens that the texts of one request may spell: what each of them takes is small,
but a request as long as a frame has room for millions. F-22."""

TOKENS_IN_PIECE: Final = 256
"""Special tokens in a piece of a prompt that is tokenised at once: llama.cpp takes time by
the square of them, so that 65,536 short messages would take a minute. F-1."""

NATIVE_LOG_LINES: Final = 40
"""Last lines of a worker's stderr kept for error messages."""

NATIVE_LOG_LINE_BYTES: Final = 1024
"""Bytes kept of one such line."""

NATIVE_LOG_READ_BYTES: Final = 4096
"""Bytes of a worker's stderr that are read at once: 4096 empty lines take 2 ms. F-35."""

NATIVE_LOG_BYTES_PER_S: Final = 256 * 1024
"""Bytes of it that are read in a second: one that writes more waits at its pipe. All that a
pipe holds of a worker that has ended is read in a quarter of a second. F-35."""

RESTART_BACKOFF_S: Final = 0.1
"""Seconds before the second start in a row without a served request; then doubled."""

RESTART_BACKOFF_MAX_S: Final = 10.0
"""Longest such pause: an operator who repairs a model waits no longer than this."""

BREAKER_DEATHS: Final = 5
"""Deaths in a row without a served request that open the breaker."""

BREAKER_OPEN_S: Final = 30.0
"""Seconds the breaker stays open before one more start is tried."""

PROMPT_CACHE_MB: Final = 256
"""MiB of host memory for what is kept, 5 conversations of 2,000 tokens with the embedded
chat model: they come back in 7 ms where reading them takes 7 s."""

PAUSE_MB: Final = 256
"""MiB of host memory for the states of paused answers: eleven of 1,000 tokens with the
embedded chat model. What does not fit is read again, at its user's expense. F-34."""

MEDIA_CACHE_MB: Final = 128
"""MiB of host memory for what a projector has made of pictures and sound. A picture takes
2 to 15 MiB, thirty seconds of sound 5 to 12: those of a few conversations."""

DRAFT_TOKENS: Final = 3
"""Tokens of one answer that are guessed at once, at most: how many really are follows what
they cost and how many come true. Four tokens in a batch cost least each on a processor
(ADR 0029); on an accelerator more may be worth while."""

MAX_DRAFT_TOKENS: Final = 7
"""Most that may be configured: a slot has room for the scores of so many and one more,
a megabyte each with a vocabulary of 262,144."""

DEFAULT_CONTEXT_TOKENS: Final = 8192
"""Context of one request unless configured: prompt and answer together."""

DEFAULT_TEMPERATURE: Final = 1.0
"""Temperature unless request or model say otherwise; the wire's default."""

DEFAULT_TOP_P: Final = 0.95
"""``top_p`` unless request or model say otherwise; the wire's default."""

DEFAULT_TOP_K: Final = 64
"""``top_k`` unless request or model say otherwise; the wire's default."""

DEFAULT_MAX_TOKENS: Final = 1000
"""Answer length unless the request says otherwise; the wire's default."""

# --- grammars ---------------------------------------------------------------
# Measured with llguidance 1.9.1 on two cores; ``bench.structure`` prints the figures.

# --- the log ----------------------------------------------------------------

LOG_QUEUE_LINES: Final = 4096
"""Log lines that wait for a slow sink; further ones are lost and counted. F-4."""

LOG_LINE_BYTES: Final = 32 * 1024
"""Bytes of one line: journald cuts those of 48 KiB in two. F-4."""

LOG_VALUE_CHARS: Final = 8192
"""Characters of one value, and as many are searched for secrets: a traceback of
``LOG_TRACEBACK_FRAMES`` takes half of that. F-3, F-4."""

LOG_VALUE_DEPTH: Final = 4
"""Levels of a value that is made of others; what is below is written as text."""

LOG_TRACEBACK_FRAMES: Final = 16
"""Innermost frames of a traceback: from the bug to the request that met it."""

LOG_FILE_BYTES: Final = 16 * 1024 * 1024
"""Bytes of one file of the log; the wire's number, some 40,000 requests. F-4."""

LOG_FILE_BYTES_MIN: Final = 2 * LOG_LINE_BYTES
"""Least that may be configured: a file has room for any line."""

LOG_GENERATIONS: Final = 3
"""Full files of the log that are kept besides; the wire's number. F-4."""

LOG_GENERATIONS_MAX: Final = 99
"""Most that may be configured: each is renamed whenever a file is full."""
