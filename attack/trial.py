"""One attack, tried: whatever happens, it has an outcome."""

import subprocess
import time
import traceback
from enum import StrEnum
from pathlib import Path
from typing import Final

import msgspec

from attack.catalogue import Attack
from attack.measures import Check, Holdings, Latency
from attack.scene import Scene, SkippedError

SHOWN_CHARS: Final = 600


class Verdict(StrEnum):
    """How an attack ended."""

    HELD = "held"
    BROKEN = "broken"
    SKIPPED = "skipped"


class Hostile(msgspec.Struct, frozen=True):
    """One of the attacker's requests."""

    name: str
    seconds: float
    code: str


class Outcome(msgspec.Struct, frozen=True, kw_only=True):
    """What is reported of one attack at one daemon."""

    attack: str
    kind: str
    about: str
    commit: str
    """Of the daemon."""
    verdict: Verdict
    reason: str = ""
    """Why it was skipped, or what failed before there was anything to judge."""
    checks: list[Check]
    latencies: dict[str, Latency]
    """Of the victim; by when, and by which connection."""
    codes: dict[str, int]
    """How the attacker's requests ended."""
    slowest: list[Hostile]
    holdings: dict[str, Holdings]
    notes: list[str]
    seconds: float


def try_attack(attack: Attack, scene: Scene) -> Outcome:
    """Try one attack."""
    began, skipped, failed = time.monotonic(), "", ""
    try:
        attack.try_in(scene)
    except SkippedError as error:
        skipped = str(error)
    except Exception:  # noqa: BLE001  # what breaks is the finding
        failed = traceback.format_exc()[-SHOWN_CHARS:]
    is_broken = failed or not all(check.is_held for check in scene.checks)
    verdict = Verdict.BROKEN if is_broken else Verdict.HELD
    return Outcome(
        attack=attack.name,
        kind=attack.kind,
        about=attack.about,
        commit=commit_of(scene.checkout),
        verdict=Verdict.SKIPPED if skipped else verdict,
        reason=failed or skipped,
        checks=scene.checks,
        latencies=scene.latencies,
        codes=scene.codes,
        slowest=[
            Hostile(each.name, round(each.seconds, 2), each.code)
            for each in scene.slowest
        ],
        holdings=scene.holdings,
        notes=scene.notes,
        seconds=round(time.monotonic() - began, 1),
    )


def commit_of(checkout: Path) -> str:
    """Give a checkout's commit, with a mark if its files differ from it."""
    command = ["git", "-C", str(checkout), "describe", "--always", "--dirty"]
    try:
        result = subprocess.run(command, capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        return "unknown"
    return result.stdout.strip()
