"""inferd fleet drain: give a member no new requests, and wait until it has none."""

import argparse
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from inferd.cli.console import EXIT_NOT_READY, EXIT_OK, CommandError
from inferd.cli.fleet import ask_members, fleet_of
from inferd.fleet.bounds import DRAIN_LOOK_S, DRAIN_S
from inferd.fleet.drained import changing_drained
from inferd.fleet.file import Fleet, FleetMember
from inferd.terminal import print_stderr

if TYPE_CHECKING:
    from inferd.fleet.probe import MemberState

LOOKS: Final = 2
"""Looks without a request, one after another, until a member counts as drained: between them
the entry has read its list."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options."""
    parser.add_argument("member", metavar="MEMBER", help="its name")
    parser.add_argument(
        "--timeout",
        type=float,
        default=DRAIN_S,
        metavar="SECONDS",
        help=f"to wait for its requests, by default {DRAIN_S:g}; 0 waits for none",
    )
    parser.add_argument(
        "--force", action="store_true", help="even if no other member is ready"
    )


def run(arguments: argparse.Namespace) -> int:
    """Drain a member; exit 1 if it has requests still."""
    name = arguments.member
    with fleet_of(arguments) as fleet:
        member = _member(fleet, name)
        if not arguments.force:
            _check_others(ask_members(fleet), name)
        with changing_drained(fleet) as drained:
            drained.add(name)
        print_stderr(f"{name} gets no new requests")
        if fleet.settings.haproxy_file:
            print_stderr("haproxy has to be told: systemctl reload haproxy")
        alone = replace(fleet, members=(member,))
        doubt = arguments.timeout and wait_idle(
            lambda: ask_members(alone)[0], arguments.timeout
        )
    if doubt:
        print_stderr(f"error: after {arguments.timeout:g} s {name} {doubt}")
        return EXIT_NOT_READY
    if arguments.timeout:
        print_stderr(f"{name} has no requests")
    return EXIT_OK


def _member(fleet: Fleet, name: str) -> FleetMember:
    for member in fleet.members:
        if member.name == name:
            return member
    names = ", ".join(each.name for each in fleet.members)
    raise CommandError(f"no member is called {name}; there are {names}")


def _check_others(states: "Sequence[MemberState]", name: str) -> None:
    """Refuse to drain the last member that would answer.

    Raises:
        CommandError: it is that.
    """
    if not any(
        each.condition == "ready" and not each.drained and each.name != name
        for each in states
    ):
        raise CommandError(
            f"no other member than {name} is ready",
            hint="--force drains it all the same",
        )


def wait_idle(
    look: "Callable[[], MemberState]",
    timeout_s: float,
    sleep: Callable[[float], None] = time.sleep,
) -> str:
    """Look until a member has no requests, twice; return why it may have some in the end.

    Args:
        look: asks the member.
        timeout_s: how long to go on.
        sleep: waits between two looks.
    """
    n_idle, waited_s = 0, 0.0
    while True:
        doubt = _doubt(look())
        n_idle = 0 if doubt else n_idle + 1
        if n_idle == LOOKS or waited_s >= timeout_s:
            return doubt
        sleep(DRAIN_LOOK_S)
        waited_s += DRAIN_LOOK_S


def _doubt(state: "MemberState") -> str:
    """Say why a member may have requests; empty if it has none.

    One that has ended has none. One that tells nothing for another reason, such as a token
    that it does not take, may have some.
    """
    if state.running:
        return "has requests still"
    if state.running is None and not state.is_gone:
        reason = state.reason or "/metrics: no number of requests"
        return f"does not tell whether it has requests: {reason}"
    return ""
