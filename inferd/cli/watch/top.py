"""inferd top: the queue, users, models and memory of a daemon, again and again."""

import argparse
import os
import select
import shutil
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

import msgspec
from msgspec import UNSET

from inferd.cli.connect import (
    OLD_DAEMON_HINT,
    add_socket_argument,
    configured_directory,
    send_command,
)
from inferd.cli.console import EXIT_OK, CommandError
from inferd.cli.numbers import finite_float
from inferd.cli.watch.keyboard import Keyboard, raw_keys
from inferd.cli.watch.link import OverviewLink
from inferd.cli.watch.screen import report, screen
from inferd.cli.watch.view import View, pressed
from inferd.terminal import Line, print_json, print_line, whole_screen
from inferd.wire.commands import Command
from inferd.wire.observed import Overview

INTERVAL_S: Final = 2.0
MIN_INTERVAL_S: Final = 0.5
MAX_INTERVAL_S: Final = 60.0
"""Seconds between two looks: one takes the daemon some milliseconds at most."""

Show = Callable[[Sequence[Line]], None]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options."""
    parser.add_argument(
        "--interval",
        type=_interval,
        default=INTERVAL_S,
        metavar="SECONDS",
        help=f"seconds between two looks, {MIN_INTERVAL_S:g} to {MAX_INTERVAL_S:g} "
        f"(default {INTERVAL_S:g})",
    )
    parser.add_argument("--once", action="store_true", help="look once and end")
    parser.add_argument(
        "--json", action="store_true", help="print JSON; with --once only"
    )
    add_socket_argument(parser)
    parser.epilog = (
        "Keys: q quits, s sorts the users, p pauses, u and m show users or models alone. "
        "For root and the daemon's own user."
    )


def run(arguments: argparse.Namespace) -> int:
    """Show overviews until a key ends it; with ``--once`` print one."""
    if arguments.json and not arguments.once:
        raise CommandError("--json needs --once")
    if arguments.once:
        _print_once(arguments.directory, as_json=arguments.json)
        return EXIT_OK
    if not (sys.stdin.isatty() and os.isatty(1)):
        raise CommandError("this is no terminal", hint="inferd top --once")
    overview = _overview(arguments.directory)  # or why there is none
    directory = arguments.directory or configured_directory()
    with raw_keys() as keyboard, whole_screen() as show:
        _Watch(OverviewLink(directory), keyboard, show, overview).run(
            arguments.interval
        )
    return EXIT_OK


def _interval(text: str) -> float:
    seconds = finite_float(text)
    if not MIN_INTERVAL_S <= seconds <= MAX_INTERVAL_S:
        raise argparse.ArgumentTypeError(
            f"{text} not in [{MIN_INTERVAL_S:g}, {MAX_INTERVAL_S:g}]"
        )
    return seconds


def _print_once(directory: Path | None, *, as_json: bool) -> None:
    overview = _overview(directory)
    if as_json:
        print_json(msgspec.json.encode(overview))
        return
    for line in report(overview, View(), shutil.get_terminal_size().columns):
        print_line(line.text.rstrip())


def _overview(directory: Path | None) -> Overview:
    reply = send_command(Command(command="top"), directory)
    if reply.overview is UNSET:
        raise CommandError("the daemon tells no overview", hint=OLD_DAEMON_HINT)
    return reply.overview


class _Watch:
    """Shows what the daemon tells, and what keys ask for."""

    def __init__(
        self, link: OverviewLink, keyboard: Keyboard, show: Show, overview: Overview
    ) -> None:
        self._link = link
        self._keyboard = keyboard
        self._show = show
        self._overview = overview
        self._view = View()
        self._last_at = time.monotonic()

    def run(self, interval_s: float) -> None:
        """Look every so many seconds, until a key ends it."""
        next_at = time.monotonic() + interval_s
        while not self._view.has_ended:
            self._draw()
            self._wait(max(0.0, next_at - time.monotonic()))
            if (now := time.monotonic()) >= next_at:
                next_at = now + interval_s
                if not self._view.is_paused:
                    self._link.ask(now)
        self._link.close()

    def _wait(self, seconds: float) -> None:
        """Wait for keys, an answer or another size of the terminal."""
        sock = self._link.sock
        sources = [*self._keyboard] + ([] if sock is None else [sock.fileno()])
        ready, _, _ = select.select(sources, [], [], seconds)
        if self._keyboard.signals in ready:
            self._keyboard.clear_signals()
        if self._keyboard.keys in ready:
            for key in self._keyboard.read() or "q":
                self._view = pressed(self._view, key)
        is_answered = sock is not None and sock.fileno() in ready
        if is_answered and (overview := self._link.receive()):
            self._overview, self._last_at = overview, time.monotonic()

    def _draw(self) -> None:
        size = os.get_terminal_size(1)
        note = self._link.fault
        if note:
            note = f"{time.monotonic() - self._last_at:.0f} s old: {note}"
        lines = screen(self._overview, self._view, size.columns, size.lines, note)
        self._show(lines)
