"""Bounds of the request queue and of running requests (settings: ``[admission]``)."""

from typing import Final

from inferd.limits.protocol import MAX_FRAME_BYTES

MAX_QUEUED: Final = 10
"""Requests that wait; the protocol's default queue depth."""

MAX_QUEUED_TOKENS: Final = 256 * 1024
"""Tokens of the prompts and texts that wait: some minutes of work at 1,000 tokens a second,
the prefill speed of a small model on two cores."""

MAX_QUEUED_BYTES: Final = 2 * MAX_FRAME_BYTES
"""Bytes of the lines of waiting requests: two of the largest. Each is held several times
over: as text, as a job, and on its way to a worker. F-1."""

QUANTUM_S: Final = 2.0
"""Seconds for which a request keeps its permit before it may be paused for another user.
People accept that long a wait for the first token, and saving and restoring a state (some
50 ms for 8,192 tokens of the embedded chat model) is a few per cent of it. F-34."""

QUANTUM_MIN_S: Final = 0.1
"""Smallest quantum that may be configured: below it, switching takes longer than the work."""

MAX_LIVE_RECORDINGS: Final = 16
"""Requests of one user to which audio may still be appended, whether or not any arrives: a
person has one microphone, a meeting ten. Each has an open file and audio in memory. F-34."""

GATEWAY_WEIGHT: Final = 16
"""Users that a gateway counts as at most, however many principals wait or run: an office of people
behind one bridge gets what they would get without it, and a gateway that makes up names no more
than sixteen people. F-46."""

MAX_GATEWAY_WEIGHT: Final = 1024
"""Largest weight of a gateway that may be configured: as many as it has principals."""

AUDIO_IDLE_S: Final = 1.5
"""Seconds after which a request that waits for more audio gives its permit back. Longer than
one second, the interval at which live clients send. F-34."""

RETRY_AFTER_MIN_MS: Final = 10
"""Shortest ``retry_after_ms`` of a refusal: a shorter one makes clients retry in a loop."""

RETRY_AFTER_MAX_MS: Final = 60_000
"""Longest ``retry_after_ms``: the load in a minute cannot be predicted."""

MAX_ACTIVE_DEFAULT_CAP: Final = 4
"""Largest default of ``max_active``, the number of requests that run at once.

Each request reserves a context's worth of KV cache (190 MB for the embedded chat model at
8,192 tokens), so the default stays small.
"""

BUDGET_RESERVED_RETRY_S: Final = 1.0
"""Seconds after which a request may come again whose tokens are left of a day's budget but for
those that running requests may use. F-58."""
