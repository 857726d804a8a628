"""One person with many user ids, and one gateway with many names."""

from collections.abc import Iterator, Mapping
from functools import partial
from itertools import count
from typing import Any, Final

from attack.asking import typed
from attack.kinds.permits import hog, on_each
from attack.load import Bounds, Load
from attack.place import Place
from attack.users import ATTACKER
from tests.daemon.harness import mock

KIND: Final = "identities"
FIRST: Final = 3_000_000
"""The first of the attacker's subordinate ids."""
N_IDENTITIES: Final = 40
RANGE: Final = 65_536
CONFIG: Final[Mapping[str, Any]] = {
    "backend": [mock(tokens=["x"] * 40, token_delay_ms=25)],
    "admission": {"max_active": 2, "max_queued": 10},
}
_ENTRY: Final = f"{ATTACKER}:{FIRST}:{RANGE}"
_HIDE: Final = f"""
for file in /etc/subuid /etc/subgid; do
    ours=$(mktemp)
    echo "{_ENTRY}" >"$ours"
    chmod 644 "$ours"
    mount --bind "$ours" "$file"
    rm "$ours"
done
exec "$@"
"""
"""Puts files of our own in place of the machine's, for the daemon alone."""
PREFIX: Final = (
    *("unshare", "--mount", "--propagation", "private", "sh", "-ec"),
    *(_HIDE, "sh"),
)


GATEWAY: Final = {
    **CONFIG,
    "admission": {**CONFIG["admission"], "gateway_weight": 2},
    "access": {"gateways": {"uids": [ATTACKER]}},
}


async def ask_as_another(place: Place, number: int, *, names: Iterator[int]) -> None:
    """Ask as somebody who never asked before."""
    question = typed("hello", max_tokens=40, principal=f"name {next(names)}")
    await place.ask(question, patience_s=600)


def attacks() -> Iterator[Load]:
    """Give all of them."""
    yield Load(
        name="names",
        kind=KIND,
        about="a gateway that asks in another name each time; 80 at once",
        run=partial(on_each, n=80, one=partial(ask_as_another, names=count())),
        config=GATEWAY,
        bounds=Bounds(max_s=8),
        is_any=False,
    )
    question = typed("hello", max_tokens=40)
    yield Load(
        name="subordinates",
        kind=KIND,
        about=f"{N_IDENTITIES} subordinate uids of one user, each with 4 requests",
        run=partial(on_each, n=4, one=partial(hog, question=question)),
        config=CONFIG,
        bounds=Bounds(max_s=8),
        uids=[FIRST + number for number in range(N_IDENTITIES)],
        is_any=False,
        prefix=PREFIX,
    )
