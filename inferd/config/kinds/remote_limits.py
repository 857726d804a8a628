"""Bounds of remote backends: value, unit, reason, and the threat they counter."""

from typing import Final

CONNECT_TIMEOUT_S: Final = 10.0
"""Seconds for finding a remote's address, connecting and the TLS handshake together: a packet
that is lost is sent again after 1, 3 and 7 s."""

FIRST_TOKEN_TIMEOUT_S: Final = 300.0
"""Seconds until the first token: the remote may have a queue, and a long prompt to read."""

STALL_TIMEOUT_S: Final = 60.0
"""Seconds between two tokens; lines without one, such as comments, do not count."""

ANSWER_TIMEOUT_S: Final = 3600.0
"""Seconds of one answer in all: 65,536 tokens at 20 a second take 55 minutes."""

MAX_ANSWER_BYTES: Final = 16 * 1024 * 1024
"""Bytes that a remote may send for one answer: a token takes some 250 in a server-sent event,
so that this is an answer of 65,536 tokens."""

HIGHEST_ANSWER_BYTES: Final = 48 * 1024 * 1024
"""Highest value of that setting. In the smallest parts this is as much as the daemon takes of
a worker for one job (``JOB_ANSWER_BYTES``)."""

MAX_EVENT_BYTES: Final = 1024 * 1024
"""Bytes of one server-sent event, and of one line in it: the largest that are known have all
arguments of a tool call."""

HIGHEST_EVENT_BYTES: Final = 16 * 1024 * 1024
"""Highest value of that setting: an event is decoded at once."""

STEP_PIECES: Final = 1024
"""Pieces of one event that are sent to the daemon in one message, which has a bound."""

MAX_HEAD_ERROR_BYTES: Final = 64 * 1024
"""Bytes that are read of an answer that reports an error; the rest is not read."""

MAX_REASON_CHARS: Final = 360
"""Characters of an error that clients are told, some 300 of them the remote's."""

MAX_KEY_BYTES: Final = 4096
"""Bytes of a key; tokens of identity providers have up to some 3,000."""

IDLE_CONNECTION_S: Final = 15.0
"""Seconds for which an idle connection is kept for the next request. Servers close theirs
after some 5 to 75 s; a request that meets that moment fails."""

LAST_READ_S: Final = 0.1
"""Seconds for the end of an HTTP answer after the end of what it says: with most servers both
come at once. Without it the connection serves no other request."""

DROPPED_S: Final = 5.0
"""Seconds for telling a remote that an answer is not waited for, where it goes on without its
reader."""

IDLE_CONNECTIONS: Final = 64
"""Idle connections that are kept at most, so that as many requests at once open none anew; each
holds a descriptor here and at the remote for ``IDLE_CONNECTION_S``."""

MAX_ADDRESSES: Final = 8
"""Addresses of a name that are tried, of those that may be connected to."""

MAX_CERTIFICATES: Final = 4096
"""Files of certificates that are read of the system's directory, which has some 150."""

MAX_CALLS: Final = 128
"""Tool calls of one answer."""

MAX_CALLS_CHARS: Final = 1024 * 1024
"""Characters of the names and arguments of all calls of one answer, which are kept until its
end: as many as there may be bytes in one event."""

MAX_SOCKET_PATH_BYTES: Final = 107
"""Bytes of the path of a Unix socket: the kernel's, less the zero at its end."""

TOKEN_SLACK: Final = 64
"""Pieces of text beyond two for each of ``max_tokens`` that a remote may send: some send a
character in two pieces, or text that was held back in small ones."""

PROMPT_BYTES_PER_TOKEN: Final = 4
"""Bytes of a prompt that are estimated to be a token, for fair shares and the queue: the text
of English is some 4.5, of others less. The answer has the remote's own count."""

MOST_BYTES_PER_TOKEN: Final = 16.0
"""Bytes of a token that are taken for possible; of English they are some 4.5."""

CALIBRATION_BYTES: Final = 256
"""Bytes of a prompt from which on a remote's count says what a token is: of a shorter one most
tokens are the template's."""

CALIBRATION_WEIGHT: Final = 0.2
"""Share of each count in the moving average: some ten prompts replace what was before."""

MAX_RETRY_AFTER_S: Final = 86_400.0
"""The longest hint to wait that is passed on: a day, by which quotas are counted."""

MAX_FAILURES: Final = 3
"""Failures within ``FAILURE_WINDOW_S`` after which a remote is asked nothing for a while."""

FAILURE_WINDOW_S: Final = 60.0
"""Seconds for which a failure counts; an answer forgets them all."""

OPEN_S: Final = 30.0
"""Seconds for which it is asked nothing; then one request tries it."""

TRIAL_S: Final = 1.0
"""Seconds after which others are told to come again while one request tries it."""

HIGHEST_DAY_TOKENS: Final = 2**53
"""Highest budget of a day, in tokens: the largest that JSON's readers keep exactly."""

TRIAL_ANSWER_S: Final = 15.0
"""Seconds in which a remote must have told ``inferd doctor --remote`` its models."""
