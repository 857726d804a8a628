"""Bounds of ``inferd fleet``, which looks after several bridges."""

from typing import Final

MAX_FLEET_FILE_BYTES: Final = 256 * 1024
"""Bytes of a fleet file: a kilobyte for each member."""

MAX_MEMBERS: Final = 256
"""Members of a fleet: their checks run side by side in one process, and the programs in front
look at each of them every few seconds. F-63."""

PROBES_AT_ONCE: Final = 32
"""Members that are asked at once. F-63."""

PROBE_S: Final = 5.0
"""Seconds that a member may take for one answer: the entry gives up as early. F-63."""

MAX_PROBE_BYTES: Final = 1024 * 1024
"""Bytes of one answer of a member: a list of 1,024 models takes a third of that. F-63."""

DRAIN_S: Final = 600.0
"""Seconds that ``inferd fleet drain`` waits by default: the longest answers take minutes."""

DRAIN_LOOK_S: Final = 1.0
"""Seconds between two looks at a member that is drained: the entry reads its list within one."""

MAX_ENTRY_BODY_BYTES: Final = 256 * 1024
"""Bytes of a request that haproxy holds to find its conversation: twice the context of 32,768
tokens. A longer one goes to any member. F-63."""

MAX_ENTRY_CONNECTIONS: Final = 1024
"""Connections that the entry takes at once: four times those of a bridge. F-63."""
