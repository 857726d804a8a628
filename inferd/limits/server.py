"""Bounds of the server that no operator needs to change: value, unit, reason."""

from typing import Final

from inferd.limits.connections import READ_AHEAD_BYTES

# --- connections and users --------------------------------------------------------------

RESERVED_CONNECTIONS_DIVISOR: Final = 8
"""One in so many connections is reserved for users who have fewer than an equal share, when
one user has all the others. F-28."""

FEW_CONNECTIONS_DIVISOR: Final = 4
"""Idle connections are closed when fewer than one in so many is free: capacity for some
hundred clients by default, long before the first is refused. F-28."""

READ_AHEAD_PER_USER: Final = 1024
"""Requests read ahead for one user on all connections: those of sixteen clients that send as
many as they may. Each takes some 5 kB, and Python's garbage collector visits all of them in
one pass. F-28, F-35."""

READ_AHEAD_MIN: Final = 2
"""Requests read ahead on a connection even above that bound: the one after the running
request, so that its cancel line takes effect. F-35."""

LINGER_S: Final = 1.0
"""Seconds that a refused client has to send what it started with, so that it reads the answer:
nc ends on a broken pipe before it reads."""

MAX_LINGERING: Final = 8
"""Refused clients that get this time at once: enough for interactive ones. They use some of the
daemon's own descriptors. F-28."""

FAILED_START_S: Final = 2.0
"""Seconds for which a daemon that did not start tells the clients at inherited sockets why.
It is also the least time between two starts that clients cause: systemd stops the sockets of
a service that they start over 20 times in 2 s. F-13."""

MAX_SUBORDINATE_BYTES: Final = 1024 * 1024
"""Bytes of ``/etc/subuid`` that are read: some 45,000 ranges. They block the daemon for 0.25 s,
at the start and at a reload. F-36."""

MAX_ACCOUNTS_BYTES: Final = 16 * 1024 * 1024
"""Bytes of ``/etc/passwd`` that are read: some 200,000 accounts. F-36."""

MAX_NAMES_LOOKED_UP: Final = 64
"""Owners of subordinate ids that are looked up in the system's user database each time the
configuration is read: a lookup may be slow, and it blocks the daemon. F-36."""

MAX_GATEWAYS: Final = 32
"""Users whose requests may name a principal: programs that speak for others, of which a machine
has a few. F-46."""

MAX_PRINCIPALS: Final = 1024
"""Principals of one gateway that are remembered, some 300 bytes each: all who ask within an hour
on a machine that many share. Of more, the ones who asked longest ago are forgotten. F-46."""

PRINCIPAL_IDLE_S: Final = 3600.0
"""Seconds after which a principal that asked nothing is forgotten, and none of its cached prompts
is used again: longer than most conversations pause. F-46."""

MAX_LISTED_REQUESTS: Final = 1000
"""Requests listed in one reply on the admin socket: there may be 65,536, the connections times
the requests read ahead on each. F-27."""

MAX_LISTED_ID_CHARS: Final = 1024
"""Characters of an id in that list; an id may have 131,072. F-27."""

MAX_ALIASES: Final = 32
"""Aliases of one backend: they are in each of its ``capabilities`` frames, and all of them are
compared with a request's ``model``."""

MAX_COUNTED_USERS: Final = 256
"""Users with request counters of their own, some 30 kB each; the users who asked for theirs
last are kept. F-27."""

# --- descriptors ------------------------------------------------------------------------

DAEMON_DESCRIPTORS: Final = 32
"""Descriptors reserved for the daemon itself: listening sockets, the lock, the log, the event
loop, one spare, and files that are open for a moment. F-28."""

BACKEND_DESCRIPTORS: Final = 9
"""Descriptors for each backend: four of its worker, three of its preparer, and two of the worker
before, which may be reaped after this one has started. F-28."""

MAX_CLIENT_DESCRIPTORS: Final = 256
"""Open descriptors that clients passed as media, until the line they came with is handled. One
user may have half of them: four lines with the most attachments. F-31."""

CLIENT_DESCRIPTORS_PART: Final = 8
"""One in so many descriptors of the process is for clients' media, where the limit of open
files is low."""

READ_AHEAD_DESCRIPTOR_BYTES: Final = READ_AHEAD_BYTES // 64
"""Bytes that one passed descriptor counts for among lines read ahead: 64 descriptors use up the
whole bound. F-31."""

MAX_MEDIA_FILES: Final = 256
"""Descriptors of media that are held at once, over all requests: eight requests with the most
attachments. A worker has each of them once or twice. F-30."""

CLOSE_TIMEOUT_S: Final = 0.0005
"""Seconds for which closing a client's descriptor may block in the kernel; reading and closing
usually take some 10 µs. F-31."""

CLOSE_RETRY_S: Final = 0.0001
"""Seconds after which a further blocking close is interrupted. F-31."""

# --- media ------------------------------------------------------------------------------

MEDIA_SLICE_CHARS: Final = 256 * 1024
"""Characters of base64 that are decoded at once, in one or two milliseconds. F-30."""

MEDIA_MARKER_BYTES: Final = 16
"""Random bytes in the marker that stands for media in texts, so that it cannot be guessed."""

MAX_IMAGE_PIXELS: Final = 64 * 1024 * 1024
"""Pixels of one picture, 8,192 squared: a model uses some hundred thousand of them, and the
library that scales it down holds all of them more than once. F-30."""

# --- the event loop ---------------------------------------------------------------------

LOOP_PASS_S: Final = 0.0004
"""Seconds of processor time that users' tasks may take in one pass of the event loop, plus one
task. A request takes some six passes from its first byte to its answer. F-35."""

TASKS_PER_PASS: Final = 8
"""Most waiting tasks that are started in one pass: that many of the smallest take
``LOOP_PASS_S``. F-35."""

MIN_TASK_CHARGE_S: Final = 20e-6
"""Seconds that a task is charged before it is measured: the time to wake a trio task. F-35."""

FAIR_SHARE_CREDIT_S: Final = 0.002
"""Seconds of work by which a returning user is ahead of the others: the time of two requests, so
that an occasional client does not wait behind a flood. Nor does it need more: who sends bursts
returns with each of them, and is ahead of a user who asks steadily. F-35."""

MAX_FAIR_SHARE_USERS: Final = 4096
"""Users whose use of the event loop is remembered: more than can be connected by default.
F-35."""

GC_YOUNG_S: Final = 0.005
"""Seconds of the event loop's processor time after which what is young is collected: it makes a
few thousand objects meanwhile, which takes 1 ms at most. F-35."""

GC_YOUNG_OBJECTS: Final = 20_000
"""Allocations, less frees, after which Python collects its youngest generation in any case:
more than there are between two of those collections. F-35."""

GC_INTERVAL_S: Final = 2.0
"""Seconds after which what is young is collected in an idle loop: a cycle may hold a line of
64 MiB. F-35."""

GC_FULL_S: Final = 1000.0
"""Seconds of the event loop's processor time after which all garbage is collected: that takes
60 to 100 ms with a thousand connections, and no cycles were found that live longer than what is
young. F-35."""

LINES_PER_TASK: Final = 32
"""Lines that are read in one task: the shortest take some 5 µs each and requests some 30 µs, less
than ``LOOP_PASS_S`` in all. F-35."""

BYTES_PER_TASK: Final = 16 * 1024
"""Bytes of lines after which a task reads no further line. F-35."""

ACCEPTS_PER_PASS: Final = 256
"""Connections accepted in one pass of the event loop at each socket: the kernel's queue is
first come, first served, so one user's flood has to be accepted faster than it grows. Each
takes some 10 µs. F-35."""

ACCEPT_PASS_S: Final = 0.0005
"""Seconds of processor time that accepting at a socket may take in one pass, plus one connection,
once ``ACCEPT_BURST_S`` is used up: refusing one takes some 80 µs. F-35."""

ACCEPT_BURST_PASS_S: Final = 0.001
"""Seconds of processor time that it may take in one pass until then: some fifty connections, so
that a client behind a thousand others in the kernel's queue waits for twenty passes. With twice
the time new connections gain little, and requests on open ones take half as long again. F-35."""

ACCEPT_BURST_S: Final = 0.03
"""Seconds of processor time that accepting may take above ``ACCEPT_PASS_S`` in all passes together:
what a full queue takes, 1,024 connections of 20 to 30 µs. F-35."""

ACCEPT_BURST_INTERVAL_S: Final = 3.0
"""Seconds in which a burst that was used up is there again: 1 % of the event loop. F-35."""

DISCONNECTS_PER_PASS: Final = 4
"""Disconnects that are handled in one pass: each ends some tasks and up to 64 requests, which
takes 0.3 to 1 ms. F-35."""

# --- large lines ------------------------------------------------------------------------

OFFLOAD_LINE_BYTES: Final = 32 * 1024
"""Bytes of the shortest large line: large lines are decoded in another process. Shorter lines
take at most 4 ms to decode and check; handing a line over takes 0.5 ms. Reading is limited from
``LIMITED_LINE_BYTES`` on, which is more. F-35."""

MAX_LINE_DECODERS: Final = 2
"""Processes that decode large lines at once; one user has at most one of them. F-35."""

DECODE_TIMEOUT_S: Final = 60.0
"""Seconds of wall-clock time for decoding one line on a busy machine; by then the kernel has
killed a process that used ``DECODE_CPU_S`` of processor time. F-35."""

# --- budgets of backends ------------------------------------------------------

MAX_KEPT_BUDGETS: Final = 1024
"""Backends whose budgets are kept in the file: more than anybody configures. F-58."""

BUDGET_FILE_BYTES: Final = 1024 * 1024
"""Bytes of that file: 1,024 names with four numbers each, and as much again. F-58."""

BUDGET_WRITE_S: Final = 1.0
"""Seconds between two writes of it: a process that is killed loses so much of its use. F-58."""

# --- ended requests -----------------------------------------------------------

MAX_EXPLAINED: Final = 1000
"""Ended requests whose times are kept for ``explain`` and ``top``: a minute of sixteen requests a
second, or a day of a few people. Each takes some 1 kB. F-68."""

MAX_EXPLAINED_BYTES: Final = 16 * 1024 * 1024
"""Bytes of all of them, estimated from above: ten thousand, as many as may be configured. F-68."""

EXPLAINED_ID_CHARS: Final = 128
"""Characters of an id in a record; an id may have 131,072. F-68."""

OVERVIEW_WINDOW_S: Final = 60.0
"""Seconds that rates, shares and percentiles of ``top`` are of: long enough for some requests,
and short enough to see what has changed."""

MAX_LISTED_LOADS: Final = 200
"""Users, and models, in one reply to ``top``: more than any terminal has lines. F-68."""

MAX_LISTED_EXPLAINED: Final = 100
"""Records in one reply: what fits some screens, and takes 1 ms to find and encode. F-68."""

MAX_NOTED_HOLDERS: Final = 8
"""Users whose requests ran while a request waited, as far as its record names them. F-68."""

MAX_NOTED_POSITIONS: Final = 16
"""Positions in the queue that a record has; further ones replace the last. F-68."""

RECORD_BYTES: Final = 1536
"""Bytes of a record without its texts: 1,100 were measured, its places in the index among them,
and lists of 16 numbers are more."""

HOLDER_BYTES: Final = 160
"""Bytes of one user in a record."""
