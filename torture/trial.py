"""One item, tried: whatever happens, it has an outcome."""

import subprocess
import time
import traceback

from bench.machine import commit
from torture.catalogue import Item
from torture.litter import watched
from torture.outcome import Context, Outcome, SkippedError, Verdict

SHOWN_CHARS = 2000
"""Characters of a reason that are kept."""


def try_item(item: Item, context: Context) -> Outcome:
    """Try one item, and see what it leaves behind."""
    began, began_at = time.gmtime(), time.monotonic()
    tried = commit()  # others may commit meanwhile
    skipped = ""
    try:
        with watched(context):
            item.run(context)
    except SkippedError as error:
        skipped = str(error)
    except Exception as error:  # noqa: BLE001  # what breaks is the finding
        context.problems.append(_told(error))
    broken = "; ".join(dict.fromkeys(context.problems))
    return Outcome(
        item=item.KEY,
        name=item.NAME,
        size=context.size,
        seed=context.seed,
        verdict=_verdict(broken=broken, skipped=skipped),
        reason=(broken or skipped)[:SHOWN_CHARS],
        counts=context.counts,
        figures=context.figures,
        notes=context.notes,
        seconds=round(time.monotonic() - began_at, 1),
        began=time.strftime("%Y-%m-%dT%H:%M:%SZ", began),
        commit=tried,
    )


def _verdict(*, broken: str, skipped: str) -> Verdict:
    if broken:
        return Verdict.BROKEN
    return Verdict.SKIPPED if skipped else Verdict.HELD


def _told(error: BaseException) -> str:
    """Say what an exception is about, and where it comes from."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    frames = traceback.extract_tb(error.__traceback__)[-1:]
    places = [f" ({each.filename.rpartition('/')[2]}:{each.lineno})" for each in frames]
    words = str(error)
    if isinstance(error, subprocess.CalledProcessError) and error.stderr:
        words = f"{words} {error.stderr!r}"
    return f"{type(error).__name__}: {words}{''.join(places)}"
