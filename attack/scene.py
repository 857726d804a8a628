"""Where one attack is tried: a daemon's code, two users, and what is found."""

import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from attack.measures import Check, Holdings, Latency, Sample
from attack.target import Service, Started, Target, started
from attack.users import ATTACKER, VICTIM, Person, User, shared_group
from tests.daemon.harness import Config


class SkippedError(Exception):
    """This machine lacks what the attack takes; its text says what."""


@dataclass
class Scene:
    """What an attack is given, and fills.

    Args:
        checkout: whose code the daemon runs.
        seconds: that a load lasts, at least.
        scale: share of the full size, for the tests.
        running: a daemon that runs already; ``None`` to start one.
    """

    checkout: Path
    seconds: float = 10.0
    scale: float = 1.0
    running: Target | None = None
    latencies: dict[str, Latency] = field(default_factory=dict)
    """Of the victim: when, and on which connection."""
    codes: dict[str, int] = field(default_factory=dict)
    """How the attacker's requests ended."""
    slowest: list[Sample] = field(default_factory=list)
    """Of the attacker's requests."""
    holdings: dict[str, Holdings] = field(default_factory=dict)
    checks: list[Check] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def require(self, name: str, is_held: object, detail: str = "") -> None:
        """Take note of something that had to be so."""
        self.checks.append(Check(name, bool(is_held), "" if is_held else detail))

    def require_in_time(self, name: str, is_held: object, detail: str = "") -> None:
        """Take note of something that had to be so, and that a slow machine may break."""
        detail = "" if is_held else detail
        self.checks.append(Check(name, bool(is_held), detail, is_of_time=True))

    @contextmanager
    def daemon(
        self,
        config: Config,
        *,
        environ: Mapping[str, str] | None = None,
        prefix: Sequence[str] = (),
    ) -> Iterator[Started]:
        """Run a daemon while inside.

        Raises:
            SkippedError: a service is attacked that has its own configuration.
        """
        if self.running is not None:
            raise SkippedError("needs a daemon with a configuration of its own")
        faults: list[str] = []
        made = Started(self.checkout, config, environ=environ, prefix=prefix)
        with started(made, faults) as daemon:
            yield daemon
        self.notes += faults

    @contextmanager
    def target(
        self, config: Config, *, is_any: bool, prefix: Sequence[str] = ()
    ) -> Iterator[Target]:
        """Give what is attacked: a service, or a daemon.

        Args:
            config: of the daemon, and of a service that may be restarted with it.
            is_any: whether a service with the configuration of its own will do.
            prefix: words before the daemon's command.
        """
        if isinstance(self.running, Service) and not prefix:
            yield self.running.restart(config)
            return
        if self.running is not None and is_any:
            yield self.running
            return
        with self.daemon(config, prefix=prefix) as daemon:
            yield daemon

    @contextmanager
    def scratch(self) -> Iterator[Path]:
        """Give a directory for files, which others may enter."""
        with tempfile.TemporaryDirectory(prefix="attack-") as place:
            Path(place).chmod(0o755)
            yield Path(place)


@contextmanager
def victim() -> Iterator[Person]:
    """Run a process of the user's who is attacked."""
    with person(VICTIM) as found:
        yield found


@contextmanager
def person(uid: int = ATTACKER) -> Iterator[Person]:
    """Run a process of a user's; the attacker's where none is named."""
    with Person(User(uid, shared_group().gr_gid)) as found:
        yield found
