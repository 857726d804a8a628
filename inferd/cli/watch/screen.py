"""The screen of ``inferd top``: an overview in lines of a terminal's size; pure."""

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from textwrap import wrap
from typing import Final

from msgspec import UNSET, UnsetType

from inferd.cli.watch.cells import Column, fit, flow, table
from inferd.cli.watch.story import duration
from inferd.cli.watch.view import HELP, Order, View
from inferd.terminal import Line, Style, escape
from inferd.wire.observed import ModelLoad, Overview, Percentiles, UserLoad

MODEL_COLUMNS: Final = (
    Column("MODEL", 10, 0, is_number=False),
    Column("STATE", 9, 2, is_number=False),
    Column("RUN", 5, 1),
    Column("WAIT", 4, 1),
    Column("TOK/S", 6, 3),
    Column("MEM", 6, 4),
    Column("CACHE", 6, 5),
    Column("CTX", 7, 7),
    Column("PID", 7, 6),
)
USER_COLUMNS: Final = (
    Column("USER", 12, 0, is_number=False),
    Column("SHARE", 5, 1),
    Column("RUN", 4, 2),
    Column("WAIT", 5, 3),
    Column("TOK/S", 6, 4),
    Column("ENDED", 6, 5),
)


def screen(
    overview: Overview | None, view: View, width: int, height: int, note: str = ""
) -> list[Line]:
    """Describe a daemon in at most ``height`` lines of exactly ``width`` cells.

    Args:
        overview: the last one that was received; ``None`` if there is none.
        view: what of it is shown.
        width: of the terminal, in cells.
        height: of the terminal, in lines.
        note: what is wrong; empty if nothing is.
    """
    if width < 1 or height < 1:
        return []
    lines = [_title(overview, view, width)]
    if note:
        lines += [Line(text, Style.BAD) for text in wrap(escape(note), width)[:3]]
    if overview is not None:
        lines += [Line(text) for text in _summary(overview, width)]
        room = height - len(lines) - 1
        lines += _tables(overview, view, width, room)
    if height > 1:
        lines = [*lines[: height - 1], Line(HELP, Style.FAINT)]
    return [line._replace(text=fit(line.text, width)) for line in lines[:height]]


def report(overview: Overview, view: View, width: int) -> list[Line]:
    """Describe a daemon in as many lines as it takes."""
    rows = len(overview.models) + len(overview.users)
    lines = screen(overview, view, width, rows + 50)
    return lines[:-1]


def amount(n_bytes: int | UnsetType) -> str:
    """Write a number of bytes in four characters or few more."""
    if n_bytes is UNSET:
        return "-"
    number = float(n_bytes)
    for unit in ("B", "K", "M", "G"):
        if number < 999.5:  # noqa: PLR2004  # three digits
            return f"{number:.0f}{unit}" if number >= 10 else f"{number:.3g}{unit}"  # noqa: PLR2004
        number /= 1024
    return f"{number:.3g}T"


def _title(overview: Overview | None, view: View, width: int) -> Line:
    if overview is None:
        return Line("inferd: no daemon has answered yet", Style.TITLE)
    clock = f"{datetime.fromtimestamp(overview.at_ns / 1e9, UTC):%H:%M:%S}"
    paused = "PAUSED " if view.is_paused else ""
    parts = [
        f"inferd {overview.version}",
        f"{paused}{overview.status}",
        f"{clock} UTC",
        f"up {duration(overview.uptime_s * 1000)}",
        f"pid {overview.pid}",
    ]
    return Line(flow(parts, width)[0], Style.TITLE)


def _summary(overview: Overview, width: int) -> Iterator[str]:
    """Yield the lines above the tables."""
    for head, parts in (
        ("queue", _queue(overview)),
        (f"{overview.window_s:.0f} s", _lately(overview)),
        ("p50 p95 p99", _latency(overview)),
        ("memory", _memory(overview)),
    ):
        if parts:
            yield from flow([f"{head:<6}", *parts], width)


def _queue(overview: Overview) -> list[str]:
    parts = [
        f"{overview.running} of {overview.places} run",
        f"{overview.waiting} wait",
    ]
    if overview.paused:
        parts.append(f"{overview.paused} paused")
    if overview.waiting_tokens:
        parts.append(f"{overview.waiting_tokens} tokens wait")
    return [*parts, f"{overview.connections} clients"]


def _lately(overview: Overview) -> list[str]:
    parts = [
        f"{overview.ended} ended",
        f"{overview.failed} failed",
        f"{overview.tokens_per_second:.4g} tokens/s",
    ]
    if overview.input_tokens:
        cached = 100 * overview.cached_tokens / overview.input_tokens
        parts.append(f"{cached:.0f} % of prompts cached")
    return parts


def _latency(overview: Overview) -> list[str]:
    named = (
        ("wait", overview.waiting_ms),
        ("first token", overview.first_token_ms),
        ("all", overview.total_ms),
    )
    return [_times(name, each) for name, each in named if each is not UNSET]


def _times(name: str, times: Percentiles) -> str:
    if max(times.p50, times.p95, times.p99) < 1000:  # noqa: PLR2004  # a second
        return f"{name} {times.p50:.0f} {times.p95:.0f} {times.p99:.0f} ms"
    seconds = (each / 1000 for each in (times.p50, times.p95, times.p99))
    return f"{name} {' '.join(f'{each:.3g}' for each in seconds)} s"


def _memory(overview: Overview) -> list[str]:
    needed = amount(overview.memory_needed_bytes)
    return [
        f"models {needed} of {amount(overview.memory_budget_bytes)}",
        f"{amount(overview.memory_available_bytes)} available",
        f"daemon {amount(overview.resident_bytes)}",
    ]


def _tables(overview: Overview, view: View, width: int, room: int) -> Iterator[Line]:
    """Yield the tables; each has its titles, and says how many rows it leaves out."""
    models = _models(overview.models, width) if view.part != "users" else []
    users = _users(overview, view.order, width) if view.part != "models" else []
    half = room // 2
    n_models = max(half, room - len(users)) if users else room
    shown = _cut(models, n_models)
    yield from shown
    yield from _cut(users, room - len(shown))


def _cut(rows: Sequence[str], room: int) -> list[Line]:
    """Make the lines of a table, below an empty one."""
    if not rows or room < 3:  # noqa: PLR2004  # an empty line, the titles and a row
        return []
    lines = [Line(""), Line(rows[0], Style.HEAD)]
    body = [Line(text) for text in rows[1:]]
    if len(body) > room - 2:
        n_left_out = len(body) - (room - 3)
        body = [*body[: room - 3], Line(f"{n_left_out} more", Style.FAINT)]
    return [*lines, *body]


def _models(models: Sequence[ModelLoad], width: int) -> list[str]:
    rows = [
        (
            each.name,
            "remote" if each.remote and each.state == "ready" else each.state,
            f"{each.running}/{each.slots}" if each.slots else f"{each.running}",
            f"{each.waiting}",
            f"{each.tokens_per_second:.4g}",
            amount(each.resident_bytes),
            amount(each.cache_bytes),
            f"{each.n_ctx}" if each.n_ctx else "-",
            f"{each.pid}" if each.pid else "-",
        )
        for each in models
    ]
    return table(MODEL_COLUMNS, rows, width)


def _users(overview: Overview, order: Order, width: int) -> list[str]:
    rows = [
        (
            _name(each),
            f"{100 * each.share:.0f} %",
            f"{each.running}",
            f"{each.waiting}",
            f"{each.tokens_per_second:.4g}",
            f"{each.ended}",
        )
        for each in _sorted(overview.users, order)
    ]
    first, *others = USER_COLUMNS
    titled = first._replace(title=f"USER by {order}")
    return table((titled, *others), rows, width)


def _sorted(users: Sequence[UserLoad], order: Order) -> list[UserLoad]:
    if order == "name":
        return sorted(users, key=lambda each: (each.uid, each.principal or ""))
    keys = {
        "share": lambda each: each.share,
        "waiting": lambda each: each.waiting,
        "tokens": lambda each: each.tokens_per_second,
    }
    return sorted(users, key=keys[order], reverse=True)


def _name(load: UserLoad) -> str:
    return f"{load.uid} for {load.principal}" if load.principal else f"{load.uid}"
