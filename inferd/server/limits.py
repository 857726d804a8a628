"""Bounds of the server alone that no operator needs to move: value, unit, reason."""

from typing import Final

from inferd.limits import READ_AHEAD_BYTES

SPARE_PLACES_PART: Final = 8
"""Of so many connections one more is let in for users who have fewer than an equal share,
where one user has all the places. F-28."""

SHORT_OF_PLACES_PART: Final = 4
"""When fewer than one in so many places are free, connections that idle are closed: room
for some hundred clients of the default, long before the first is refused. F-28."""

DAEMON_DESCRIPTORS: Final = 32
"""Descriptors left to the daemon itself: sockets to listen on, the lock, the log, the
event loop, one to spare, and what is open for a moment. F-28."""

BACKEND_DESCRIPTORS: Final = 8
"""Descriptors for each backend: pipes and the process of its worker, and of the next one
that is started before the last is reaped. F-28."""

READ_AHEAD_OF_A_USER: Final = 1024
"""Requests that are read ahead for one user on all its connections: what sixteen clients
that send as much as they may have. Each takes some 5 kB, and Python's garbage collector
looks at all of them at once. F-28, F-35."""

LEAST_READ_AHEAD: Final = 2
"""Requests that are read ahead on a connection nonetheless: what follows the one that is
answered, so that its cancel is heard. F-35."""

MAX_CLIENT_DESCRIPTORS: Final = 256
"""Descriptors of clients that are open at once: of media, for the lines that they came with.
Half of them for one user alone: four lines with all that one may have. F-31."""

CLIENT_DESCRIPTORS_PART: Final = 8
"""Of so many descriptors one is for those of clients, where there are few."""

DESCRIPTOR_BYTES: Final = READ_AHEAD_BYTES // 64
"""Bytes of lines that one descriptor counts for, where lines are read ahead: 64 of them are
all that is. F-31."""

HEARD_OUT_S: Final = 1.0
"""Seconds that a client who is turned away has to write what it came with, so that it reads
the answer: nc ends at a pipe that breaks, and has read nothing then."""

MAX_HEARD_OUT: Final = 8
"""Clients for whom this is done at once: those who ask by hand, not a crowd. They take some
of the daemon's own descriptors. F-28."""

REFUSALS_LOGGED_EVERY_S: Final = 10.0
"""Seconds between two lines of the log on clients of one user that are turned away: who is
refused may come again at once. F-4."""

MAX_REFUSALS_REMEMBERED: Final = 1024
"""Users and sockets for which this is kept; the oldest is forgotten first."""

MAX_SUBORDINATE_BYTES: Final = 1024 * 1024
"""Bytes of ``/etc/subuid`` that are read: some 45,000 ranges. Nothing else is done for the
quarter of a second that they take, at the start and at a reload. F-36."""

MAX_ACCOUNTS_BYTES: Final = 16 * 1024 * 1024
"""Bytes of ``/etc/passwd`` that are read: some 200,000 accounts. F-36."""

MAX_NAMES_LOOKED_UP: Final = 64
"""Owners of subordinate ids who are asked for in the system's directory, each time that
the configuration is read: it may be slow, and nothing else is done meanwhile. F-36."""

MAX_LISTED_REQUESTS: Final = 1000
"""Requests that one reply on the admin socket lists: connections times what is read ahead
may be 65,536. F-27."""

MAX_COUNTED_USERS: Final = 256
"""Users whose own requests are counted, some 30 kB each; who asked last is kept. F-27."""

MAX_LISTED_ID_CHARS: Final = 1024
"""Characters of an id in that list, of 131,072 that it may have. F-27."""

MAX_MEDIA_FILES: Final = 256
"""Descriptors of media that are held at once, over all requests: eight of those with the most
attachments. A worker has each once or twice. F-30."""

MEDIA_SLICE_CHARS: Final = 256 * 1024
"""Characters of base64 that are decoded at once: a millisecond or two. F-30."""

MAX_IMAGE_PIXELS: Final = 64 * 1024 * 1024
"""Pixels of one picture, 8,192 squared: a model looks at some hundred thousand of them, and
the library that makes them fewer holds all of them more than once. F-30."""

# --- the event loop ---------------------------------------------------------------------

PASS_S: Final = 0.0004
"""Seconds of processor time that users' work may take in one pass of the event loop, and one
piece more. A request of another user takes some six passes from its first byte to its
answer. F-35."""

TURNS_A_PASS: Final = 8
"""Pieces of waiting work that are begun in one pass at most: of the smallest ones as many take
``PASS_S``. F-35."""

LEAST_CHARGE_S: Final = 20e-6
"""Seconds that one piece of work counts for before it is measured: what a task takes to be
woken. F-35."""

SHARE_CREDIT_S: Final = 0.01
"""Seconds of work by which a user who comes back is ahead of those who wait: as much as a
request or two take, so that one who asks now and then does not wait for one who floods. F-35."""

MAX_USERS_REMEMBERED: Final = 4096
"""Users whose use of the event loop is remembered: more than there can be connections by
default. F-35."""

YOUNG_OBJECTS: Final = 20_000
"""Objects that Python makes and does not free before it looks for cycles among them. F-35."""

COLLECT_S: Final = 2.0
"""Seconds after which it looks whatever there is: a cycle may hold a line of 64 MiB. F-35."""

FULL_COLLECTION_PART: Final = 100
"""Of so many full collections of Python's garbage one is made: each takes 60 to 100 ms with
a thousand connections, and the daemon leaves few cycles. F-35."""

LINES_A_TURN: Final = 32
"""Lines that are read in one piece of work: of the shortest, which cost some 5 µs each, and
of requests, some 30 µs, less than ``PASS_S``. F-35."""

ACCEPTS_A_PASS: Final = 256
"""Connections that are accepted in one pass of the event loop at each socket: the kernel's
queue is first come, first served, so one user's flood has to be taken off it faster than it
grows. Each takes some 10 µs. F-35."""

ACCEPT_S: Final = 0.0005
"""Seconds of processor time that this may take in one pass, and one connection more: who is
turned away takes some 80 µs. F-35."""

HANGUPS_A_PASS: Final = 4
"""Connections whose end is noticed in one pass: each ends some tasks and up to 64 requests,
which takes a third of a millisecond to a whole one. F-35."""

# --- the log ----------------------------------------------------------------------------

LOG_BURST_LINES: Final = 512
"""Lines of the log on one user's connections and refused requests at once: an eighth of what
a sink has room for. F-4."""

LOG_LINES_PER_S: Final = 2.0
"""Such lines a second for good: it takes a user most of a day to fill all files of the log with
them. What is left out is counted. F-4."""

LOG_SERVED_BURST_LINES: Final = 1024
"""Lines of the log on one user's requests that were served, at once. F-4."""

LOG_SERVED_LINES_PER_S: Final = 50.0
"""Such lines a second for good: more than a model answers, and an hour of it fills the log's
files. What is left out is counted. F-4."""

# --- large lines ------------------------------------------------------------------------

DECODED_APART_BYTES: Final = 32 * 1024
"""Bytes of the shortest line that another process reads. Shorter ones take 4 ms to be read and
checked at worst; to hand a line over takes half a millisecond. F-35."""

BYTES_A_TURN: Final = 16 * 1024
"""Bytes of lines after which no further one is read in the same piece of work. F-35."""

MAX_DECODERS: Final = 2
"""Processes that read large lines at once; a single user has one of them. F-35."""

DECODE_S: Final = 60.0
"""Seconds that one line may take to be read, while others take the processor: by then the
kernel has ended what took ``READ_CPU_S`` of it. F-35."""

MARKER_BYTES: Final = 16
"""Of what marks media in texts: nobody guesses that many."""

# --- descriptors of clients that are closed --------------------------------------------------

CLOSE_S: Final = 0.0005
"""Seconds that the kernel may wait where it closes what a client has sent: to read and to close
takes some 10 µs where there is nothing of that. F-31."""

CLOSE_AGAIN_S: Final = 0.0001
"""Seconds after which the next wait of the same kind is cut short. F-31."""
