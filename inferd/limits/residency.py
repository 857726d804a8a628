"""Bounds of loading on demand (settings: ``[memory]`` and ``[[backend]]``)."""

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
