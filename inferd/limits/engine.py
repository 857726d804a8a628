"""Bounds of workers and preparers as the daemon enforces them (settings: ``[limits]``)."""

from typing import Final

from inferd.limits.protocol import MAX_FRAME_BYTES

MEMORY_RESERVE_BYTES: Final = 512 * 1024 * 1024
"""Bytes of the memory available at the start that are left free (setting: ``[memory]``): for
other programs, and for what preparing requests takes."""

MIN_FITTED_CONTEXT_TOKENS: Final = 2048
"""Tokens to which a context of default size may shrink to fit the memory. A chat hardly works
with fewer; a smaller context can still be configured."""

MAX_SEQUENCES: Final = 256
"""Most requests that can run at once: llama.cpp's own bound (``LLAMA_MAX_SEQ``)."""

MAX_THREADS: Final = 512
"""Most threads for decoding: ggml's own bound (``GGML_MAX_N_THREADS``)."""

MAX_IPC_MESSAGE_BYTES: Final = 2 * MAX_FRAME_BYTES
"""Bytes of one message between daemon and worker: the largest request, encoded anew."""

IPC_SEND_QUEUE_MESSAGES: Final = 4096
"""Messages that may wait for a worker that does not read; above it the worker counts as hung.
Each request queues four at most, so this is a thousand requests."""

IPC_STRAY_BURST: Final = 50_000
"""Messages that belong to no open job and are tolerated at once from one worker: those under
way when a job was dropped, at most a full pipe for each job. F-25."""

IPC_STRAY_PER_S: Final = 10_000
"""Such messages per second that are tolerated in the long run; heartbeats of an idle worker are
one in two seconds. F-25."""

JOB_ANSWER_BYTES: Final = 2 * MAX_FRAME_BYTES
"""Bytes of results that a worker may send for one job, with ``JOB_ITEM_BYTES`` for each item;
more where log probabilities are requested. A million tokens take half of it. F-25."""

JOB_ITEM_BYTES: Final = 64
"""Bytes that one item of a job's results is charged beside its text. F-25."""

IPC_ITEMS_MAX: Final = 65_536
"""Items in the lists of one message from a worker; a step has a few for each slot. A message
of ``MAX_IPC_MESSAGE_BYTES`` full of list items would decode to gigabytes. F-25."""

LOAD_MESSAGES: Final = 1_000_000
"""Messages that a loading worker may send; hashing a model of one terabyte takes 131,072 of
them. F-25."""

WORKER_SILENCE_S: Final = 60.0
"""Seconds without a message from a ready worker, or without progress while it runs jobs,
before it counts as hung. It sends one after each decode step (at most 512 tokens, usually
2 s of prefill; 30 s of audio, 1 to 20 s with small models) and every ``HEARTBEAT_S`` when
idle. A model that takes longer needs a larger value. F-9, F-25."""

LOAD_SILENCE_S: Final = 300.0
"""Seconds without progress while a worker loads: a cold disk at 50 MB/s reads 15 GB."""

CHANGED_FILE_LOADS: Final = 3
"""Workers that load a model whose file changes meanwhile, each of which hashes it: a command
that gives files further names touches each file once, or twice if it is interrupted. F-6."""

HEARTBEAT_S: Final = 2.0
"""Seconds between the heartbeats of an idle worker."""

HEARTBEATS_IN_SILENCE: Final = 4
"""Heartbeats that must be missed before a worker counts as hung, however short the configured
silence is."""

PREPARE_TIMEOUT_S: Final = 30.0
"""Seconds one prompt may take to be rendered and tokenised before the worker is killed: a
template cannot be interrupted otherwise."""

PREPARE_ATTEMPTS_MAX: Final = 3
"""Attempts to prepare one request whose worker dies meanwhile; then it is refused."""

RENDER_TIMEOUT_S: Final = 5.0
"""Seconds of wall-clock time for rendering one prompt and checking its grammar, all attempts
together, before the process that does it is replaced. It may use 3 s of processor time
(``RENDER_TOTAL_CPU_S``), on a processor that may be busy. F-11."""

RENDER_ATTEMPTS_MAX: Final = 2
"""Attempts to render one prompt when the rendering process is killed. F-11."""

PREPARER_STARTS_MAX: Final = 2
"""Attempts to start a preparer that ends before it is ready. F-11."""

VOCABULARY_MAX_BYTES: Final = 64 * 1024 * 1024
"""Bytes of a vocabulary that a worker sends: some 3 MiB for 262,144 tokens. F-25."""

KNOWN_GRAMMARS_PER_USER: Final = 32
"""Grammars of one user that are known to compile in time and are not checked again. F-32."""

KNOWN_GRAMMARS_USERS: Final = 256
"""Users whose checked grammars are remembered, 32 bytes for each grammar; the users with the
latest requests are kept. F-32."""

KNOWN_GRAMMARS_PRINCIPALS: Final = 16
"""Principals of one gateway whose checked grammars are remembered; those with the latest requests
are kept. F-46."""

NATIVE_LOG_LINES: Final = 40
"""Last lines of a worker's stderr that are kept for error messages."""

NATIVE_LOG_LINE_BYTES: Final = 1024
"""Bytes kept of one such line."""

NATIVE_LOG_READ_BYTES: Final = 4096
"""Bytes of a worker's stderr that are read at once: 4,096 empty lines take 2 ms. F-35."""

NATIVE_LOG_BYTES_PER_S: Final = 256 * 1024
"""Bytes of a worker's stderr that are read per second; a worker that writes more blocks on
its pipe. The pipe of a worker that has ended is emptied in 0.25 s. F-35."""

RESTART_BACKOFF_S: Final = 0.1
"""Seconds before the second start in a row without a served request; doubled each time."""

RESTART_BACKOFF_MAX_S: Final = 10.0
"""Longest such pause: an operator who repairs a model waits no longer than this."""

BREAKER_DEATHS: Final = 5
"""Deaths in a row without a served request that open the circuit breaker."""

BREAKER_OPEN_S: Final = 30.0
"""Seconds for which the breaker stays open before one more start is tried."""

PROMPT_CACHE_MB: Final = 256
"""MiB of host memory for cached prefixes, 5 conversations of 2,000 tokens with the embedded
chat model: restoring one takes 7 ms where computing it takes 7 s."""

PAUSE_MB: Final = 256
"""MiB of host memory for the states of paused answers: eleven of 1,000 tokens with the
embedded chat model. A state that does not fit is computed again, at its user's expense.
F-34."""

MEDIA_CACHE_MB: Final = 128
"""MiB of host memory for a projector's embeddings of pictures and audio. A picture takes 2 to
15 MiB, thirty seconds of audio 5 to 12: enough for those of a few conversations."""

DRAFT_TOKENS: Final = 3
"""Most tokens drafted at once for one answer; the actual number follows their cost and
acceptance rate. On a processor, four tokens in a batch are the cheapest per token
(ADR 0029); on an accelerator more may pay off."""

MAX_DRAFT_TOKENS: Final = 7
"""Most drafted tokens that may be configured: a slot has logits for that many and one more,
a megabyte each with a vocabulary of 262,144."""

DEFAULT_CONTEXT_TOKENS: Final = 8192
"""Context of one request unless configured: prompt and answer together."""

MAX_RUNGS: Final = 16
"""Models of one ladder, of which the first that fits is served: a worker is asked at the start
what each of them needs, in half a second."""

SPAWNER_START_S: Final = 60.0
"""Seconds in which the process that starts workers of remote engines must have started: as long
as Python takes on a machine that has next to no time for it."""

SPAWNER_ANSWER_S: Final = 30.0
"""Seconds in which it must have forked. The daemon waits, for some 2 ms; on a machine with eight
times more work than cores over 5 s were seen, and a daemon that gives up does not start."""
