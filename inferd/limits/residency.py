"""Bounds of loading on demand (settings: ``[memory]``, ``[models]``, ``[[backend]]``)."""

from typing import Final

MIN_RESIDENCY_S: Final = 5.0
"""Seconds after it got ready in which a model is not unloaded for another: a few answers.
Loading a model of some gigabytes takes about as long, so that two that do not fit together
are in use half of the time at least."""

LONGEST_WAIT_S: Final = 30.0
"""Seconds that a model which has no room waits for one that is in use, before that one starts
no more requests: people wait so long for a model to load at all."""

KEEP_ALIVE_S: Final = 300.0
"""Seconds without a request after which a model that was loaded on demand is unloaded: the
five minutes that users of other local engines know."""

KEEP_ALIVE_MAX_S: Final = 30 * 86_400
"""Longest ``keep_alive_s``, of a setting or a request: a month; 0 is for ever."""

KEPT_USERS: Final = 64
"""Users whose ``keep_alive_s`` is remembered for one model, each until that model is unloaded.
Those of more are forgotten, the shortest time first: none of them decides alone. F-43."""

LOAD_COMMAND_S: Final = 3600.0
"""Seconds that ``inferd load``, ``unload`` and ``reload`` wait: until running answers have ended, and a
large model is read from a slow disk. The daemon goes on if they give up."""

MAX_SERVED_MODELS: Final = 256
"""Models of the store that ``[models] serve = true`` serves, the first by name: each has a frame
of some 300 bytes in the status, and is looked at again whenever the store is."""

MAX_OPENED_MODELS: Final = 32
"""Models of the store whose headers are known at once: more than fit into the memory of most
machines. Each may have a worker, and ``BACKEND_DESCRIPTORS`` are kept for it. F-45."""

DOCTOR_MAX_SERVED: Final = 16
"""Models of the store that ``inferd doctor`` asks a worker about, which takes half a second
to some seconds each."""

STORE_LOOK_S: Final = 1.0
"""Seconds between two looks at the store, which take some milliseconds in a thread: a request
for a name that is not known waits for the next one. F-45."""

MAX_HEADER_READS: Final = 2
"""Processes that read headers of models of the store at once, each for half a second to some
seconds; one user has at most one of them. F-45."""
