"""Bounds of the HTTP bridge and its helper (settings: ``[bridge]``, ``[bridge_helper]``)."""

from typing import Final

MAX_HEAD_BYTES: Final = 16 * 1024
"""Bytes of a request's line and headers: common servers allow 8 to 32 KiB. F-49."""

HEAD_S: Final = 10.0
"""Seconds from the first byte of a request's head to its last: it fits one packet or
two. F-49."""

MAX_BODY_BYTES: Final = 16 * 1024 * 1024
"""Bytes of a request's body: four times the longest text that is counted at all, or some
pictures. F-49."""

BODY_S: Final = 60.0
"""Seconds that a body may take to arrive, as ``LINE_TIMEOUT_S`` of the daemon. F-49."""

MAX_HTTP_CONNECTIONS: Final = 256
"""HTTP connections at once. One costs some 20 kB while idle, and a body while it is
sent. F-49."""

MAX_BODIES_BYTES: Final = 128 * 1024 * 1024
"""Bytes of all bodies that are being received or served: eight of the largest, or two
recordings. F-49."""

MAX_AUDIO_BYTES: Final = 64 * 1024 * 1024
"""Bytes of a body with a recording: an hour of MP3 at 128 kbit/s takes 58 MB. OpenAI's API
allows 25 MB. F-49."""

AUDIO_S: Final = 300.0
"""Seconds that a body with a recording may take to arrive: the largest at 2 Mbit/s. F-49."""

MAX_FORM_PARTS: Final = 64
"""Parts of a form: half as many again as whisper.cpp's server has fields. F-49."""

FORM_FIELD_BYTES: Final = 16 * 1024
"""Bytes of a field of a form other than its file: four times the longest prompt of a
transcription. F-49."""

PART_HEADER_BYTES: Final = 4 * 1024
"""Bytes of one header of a part of a form, which has a name and that of a file. F-49."""

PART_HEADERS: Final = 8
"""Headers of one part of a form; RFC 7578 has three. F-49."""

BOUNDARY_CHARS: Final = 70
"""Characters of the boundary between the parts of a form, as RFC 2046 has it."""

MAX_HTTP_REQUESTS: Final = 64
"""Requests that are with the daemon at once, each on a connection of its own; the daemon's
queue decides about the order. F-49."""

HTTP_BACKLOG: Final = 1024
"""Connections that the kernel queues before they are accepted, as ``LISTEN_BACKLOG`` of the
daemon. Where the queue is full, it drops what opens a connection, and the client tries again a
second later. F-49."""

NEW_CONNECTION_S: Final = 2.0
"""Seconds that a new connection has for its first request before it is closed to make room for
another: a client that opens some hundred at once sends on the first when all are open. F-49."""

KEPT_CLIENTS: Final = 8
"""Connections to the daemon that are kept for each surface while no request uses them: as many
as answers run at once on most machines. The daemon closes idle ones where it needs them. F-49."""

HTTP_IDLE_S: Final = 75.0
"""Seconds without a request after which an HTTP connection is closed: browsers and client
libraries keep theirs for some 5 to 60 s."""

HTTP_WRITE_S: Final = 60.0
"""Seconds that one write may take before a client that stopped reading is disconnected, as
``WRITE_TIMEOUT_S`` of the daemon. F-49."""

HTTP_DRAIN_S: Final = 15.0
"""Seconds that answers have to finish after SIGTERM, as ``DRAIN_S`` of the daemon."""

QUIET_START_S: Final = 10.0
"""Seconds without a part of the answer after which the status line of a streamed one is sent
all the same. Until then a refusal still has a status of its own."""

KEEP_ALIVE_S: Final = 10.0
"""Seconds without data after which a streamed answer has a comment: proxies close connections
that are silent for 30 to 60 s."""

HANDSHAKE_S: Final = 10.0
"""Seconds that a TLS handshake may take. F-49."""

READ_BYTES: Final = 64 * 1024
"""Bytes of one read from an HTTP connection."""

PIPELINED_BYTES: Final = 64 * 1024
"""Bytes of further requests that are received while one is answered, so that the end of the
connection is seen at once; over it, the connection is closed. F-49."""

BODY_QUEUE_EVENTS: Final = 4
"""Parts of a body that are received before the one that reads it has taken them. F-49."""

THREADED_BODY_BYTES: Final = 64 * 1024
"""Bytes of a body from which on it is translated in a thread: below, that takes less than a
millisecond."""

FAILED_TOKENS: Final = 5
"""Tokens that are not valid which one sender may try in a row. F-48."""

FAILED_TOKEN_S: Final = 1.0
"""Seconds after which one more may be tried. F-48."""

MAX_FAILED_SENDERS: Final = 1024
"""Senders of such tokens that are remembered; the one that failed longest ago is forgotten
first. F-48."""

MAX_TOKENS: Final = 1024
"""Tokens of a bridge: more than people on one machine, in a file of some 300 kB."""

TOKEN_FILE_BYTES: Final = 1024 * 1024
"""Bytes of the file of tokens, with all ``MAX_TOKENS`` in it."""

OWNER_ANSWER_BYTES: Final = 4096
"""Bytes of the kernel's answer to whose a connection is, which has some 130. F-47."""

KEPT_ADDRESSES: Final = 64
"""Addresses of loopback connections whose form is kept: nearly all have one or two. F-47."""

MAX_CHOICES_TOKENS: Final = 4096
"""Tokens of an answer for which the request sets no bound: OpenAI's API has none, and half of
a default context is left for the prompt."""

MAX_STATED_NAMES: Final = 8
"""Fields that one refusal names: who reads it mends these first."""

MAX_STATED_CHARS: Final = 512
"""Characters of a client's text that one refusal repeats."""

DESCRIBE_S: Final = 10.0
"""Seconds that the daemon may take to say which models it serves."""

USAGE_S: Final = 10.0
"""Seconds after which the tokens that were used are written to their file, if they have changed:
what a bridge that is killed forgets."""

USAGE_LOCK_S: Final = 1.0
"""Seconds for which another bridge of the same user may keep that file locked: to replace it
takes some milliseconds. What was used is added the next time then."""

USAGE_FILE_BYTES: Final = 256 * 1024
"""Bytes of that file: names of 64 characters and numbers, for each of ``MAX_TOKENS``."""

RESERVED_RETRY_S: Final = 1.0
"""Seconds after which a caller may ask again whose other requests may use what is left of its
quota."""

CLOSE_S: Final = 1.0
"""Seconds that the end of a connection may take to be told: to the other side of TLS, and to an
application that takes nothing any more."""

DISCARDED_BYTES: Final = 1024 * 1024
"""Bytes of a body that are received and dropped after a request was refused: an end of the
connection before that would destroy the answer on its way."""

DISCARD_S: Final = 1.0
"""Seconds for which they are received."""

LINGER_S: Final = 5.0
"""Seconds for which a connection is read on that closes while its client may still send: one that
is closed with unread bytes is reset, and the answer may be lost by that. F-55."""

LINGER_BYTES: Final = 4 * MAX_AUDIO_BYTES
"""Bytes that are read and dropped in that time: some uploads of the largest that is allowed, at
gigabytes a second. F-55."""

SOUND_TOKENS_PER_S: Final = 50
"""Tokens that a second of sound counts for where a transcription is cut before the daemon tells
their number: the positions of whisper's encoder, 1,500 for 30 s."""

MAX_PLAIN_MODELS: Final = 256
"""Names of models that are remembered not to reason: more than a machine serves. F-49."""

PLAIN_MODEL_S: Final = 60.0
"""Seconds for which a model is taken not to reason once it has refused to: after a reload, its
name may be another model's."""

# --- the bridge's helper (settings: ``[bridge_helper]``) ---------------------------------

HELPER_REQUEST_BYTES: Final = 16 * 1024
"""Bytes of a request: a source has at most ``SOURCE_MAX_CHARS``. F-53."""

HELPER_FRAME_BYTES: Final = 2 * 1024 * 1024
"""Bytes of a frame of the helper: a model of ``MODEL_MAX_FILES`` files has half of it. F-53."""

HELPER_REQUEST_S: Final = 10.0
"""Seconds that a request may take to arrive, from the connection on. F-53."""

HELPER_WRITE_S: Final = 60.0
"""Seconds that one write to the bridge may take, as ``WRITE_TIMEOUT_S`` of the daemon. F-53."""

HELPER_IDLE_S: Final = 60.0
"""Seconds without a connection after which a helper ends that systemd starts when it is
needed."""

MAX_HELPER_REQUESTS: Final = 8
"""Requests that are carried out at once, half of them at most of one principal: each is short,
but loads and one pull. F-53."""

MAX_HELPER_CONNECTIONS: Final = 32
"""Connections at once; further ones wait to be accepted. F-53."""

PULLS_PER_HOUR: Final = 12
"""Pulls that are begun within an hour, half of them at most of one principal. F-53."""

HELPER_PULL_BYTES: Final = 32 * 1024 * 1024 * 1024
"""Bytes of the files of a model that is pulled: one of 70e9 parameters in 3 bits fits. F-53."""

HELPER_PULL_S: Final = 6 * 3600.0
"""Seconds that a pull may take: ``HELPER_PULL_BYTES`` come in them at 1.5 MB/s. F-53."""

HELPER_FREE_BYTES: Final = 8 * 1024 * 1024 * 1024
"""Bytes of the store's file system that pulls leave free, for all else on it. F-53."""

MAX_TOLD_REQUESTS: Final = 100
"""Requests of which the helper, and the bridge to each caller, tells at once: more nobody reads.
F-65."""

OWN_REQUESTS_S: Final = 5.0
"""Seconds that the daemon may take to list its requests for somebody who looks at the status.
F-65."""

OWN_REQUESTS_KEPT_S: Final = 0.5
"""Seconds for which that list serves all who look: the daemon has few places for those who watch
it. F-65."""

MAX_ALLOWED_SOURCES: Final = 64
"""Entries of ``allow_sources``: each is compared with each source."""

HELPER_PROGRESS_S: Final = 0.25
"""Seconds between two frames about the progress of a file: more often nobody reads them."""

HELPER_END_S: Final = 10.0
"""Seconds that a pull may take to end once nobody waits for it; then it is killed."""

# --- chats that are kept (settings: ``[chats]``) ------------------------------------------

MAX_CHATS: Final = 10_000
"""Chats of one user: some thirty a day for a year. F-62."""

MAX_CHAT_MESSAGES: Final = 5_000
"""Messages of one chat, on all its branches: two and a half times the longest that were
measured. F-62."""

MAX_MESSAGE_CHARS: Final = 400_000
"""Characters of one message: about the tokens of the longest contexts. F-62."""

MAX_USER_CHARS: Final = 200_000_000
"""Characters of all messages of one user, and of reasoning, some 200 MB on disk. F-62."""

MAX_PENDING_ANSWERS: Final = 4
"""Answers of one user that wait or are generated at once; a person reads one. F-62."""

MAX_FOLLOWERS: Final = 16
"""Connections of one user that follow answers at once: several pages and devices. F-62."""

MAX_TITLE_CHARS: Final = 100
"""Characters of a title, as Open-Assistant's service has it."""

MAX_SYSTEM_PROMPT_CHARS: Final = 32_000
"""Characters of a system prompt: more than those of large agents."""

MAX_PAGE_CHATS: Final = 100
"""Chats of one page of a list."""

MAX_SEARCH_CHARS: Final = 256
"""Characters of the words of a search."""

MAX_SEARCH_WORDS: Final = 16
"""Words of a search; each is looked up on its own."""

MAX_HITS: Final = 100
"""Messages that a search finds."""

EXCERPT_CHARS: Final = 160
"""Characters around the words that were found."""

ANSWER_S: Final = 3600.0
"""Seconds that an answer may wait and run: a long queue, and a long answer."""

FLUSH_S: Final = 0.5
"""Seconds between two writes of an answer that is being generated: what a bridge that is killed
loses of it."""

FOLLOW_S: Final = 0.5
"""Seconds between two looks at an answer that another bridge generates."""

LEASE_S: Final = 30.0
"""Seconds after which a bridge that has not said that it runs is taken for dead."""

HEARTBEAT_S: Final = 5.0
"""Seconds between two signs that a bridge runs."""

REOPEN_S: Final = 2.0
"""Seconds after which a database that could not be opened is tried again."""

LAST_WRITES_S: Final = 5.0
"""Seconds for which a bridge that ends tries to store how its answers ended; those that are not
stored then are aborted by its next start."""

BUSY_S: Final = 5.0
"""Seconds for which another process may hold the database before a request fails."""

POOL_CONNECTIONS: Final = 4
"""Connections to a PostgreSQL database; SQLite has one, as it has one writer."""

ERASED_PAGES: Final = 256
"""Pages of the index of words that one transaction writes when deleted ones are taken out of it:
a megabyte, some 40 ms in which nobody else writes. F-62."""

ERASE_PAUSE_S: Final = 0.1
"""Seconds between two of these, in which others are served. F-62."""

SWEEP_S: Final = 3600.0
"""Seconds between two looks for chats that are older than ``retention_days``."""

DEBUG_TOKENS: Final = 1024
"""Tokens that ``--development`` gives out before the oldest is forgotten. F-61."""

MAX_FITTING_TRIES: Final = 6
"""Requests by which a conversation is cut until it fits: the daemon says by how much it is too
long, and one or two do."""

SUMMARY_TOKENS: Final = 512
"""Tokens of the summary of what is left out."""

MAX_MESSAGE_FILES: Final = 8
"""Pictures and recordings of one message, as many as the page takes files. F-62."""

MAX_FILE_BYTES: Final = 10 * 1024 * 1024
"""Bytes of a picture or recording: with base64 it fits ``MAX_BODY_BYTES``. F-62."""

MAX_USER_FILE_BYTES: Final = 1024 * 1024 * 1024
"""Bytes of all pictures and recordings of one user: a thousand of a megabyte. F-62."""

MAX_FILE_NAME_CHARS: Final = 200
"""Characters of a file's name; file systems have 255 bytes."""

MAX_ASKED_FILE_BYTES: Final = 32 * 1024 * 1024
"""Bytes of the files that one answer is asked for with; the turns before them are left out.
Two of the largest bodies. F-62."""

MAX_HELD_FILE_BYTES: Final = 4 * MAX_ASKED_FILE_BYTES
"""Bytes of files that all answers hold at once, as ``MAX_BODIES_BYTES``. F-62."""

ATTACHMENT_CHARS: Final = 2048
"""Characters that a file counts for where the daemon has not counted it: an image has some 500
tokens in most models. F-62."""

MAX_EXPORT_FILE_BYTES: Final = 11 * 1024 * 1024
"""Bytes of the files in an export: with base64 and texts an import takes it by default."""

APPENDED_LINE_BYTES: Final = 512 * 1024
"""Bytes of a line of sound, and of the request before such lines: 6 s in base64."""
