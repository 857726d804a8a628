"""A chat of two thousand messages in a browser, while an answer is written below them."""

import json
import os
import shutil
from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Final

import httpx2
from playwright.sync_api import CDPSession

from tests.browser.browsing import CHROMIUM, RICH, Reader, chromium, tokens_of
from tests.daemon.bridge import bridge_to
from tests.daemon.configuration import mock
from tests.daemon.fixtures import daemons
from torture.outcome import Context, SkippedError

KEY: Final = "long-chat"
NAME: Final = "A long chat in a browser, with an answer that is being written"

MOST_SCRIPT_MS: Final = 50.0
"""Processor time of script in one frame; longer ones are felt."""
MOST_GROWTH_MIB: Final = 2.0
"""What the heap may have grown by after one more answer, garbage collected."""
MIB: Final = 1024 * 1024
US: Final = 1000.0
"""Microseconds of a millisecond."""
CATEGORIES: Final = ("devtools.timeline", "disabled-by-default-devtools.timeline", "v8")
MAIN_THREAD: Final = "CrRendererMain"
FRAME: Final = "Commit"
"""Ends a frame: what was drawn goes to the compositor."""
IS_ANSWERED: Final = """number => {
    const [prompt, answer] = [...document.querySelectorAll('.message')].slice(-2);
    return answer?.dataset.state === 'complete' && prompt.textContent.includes(`all of it, ${number}`);
}"""
SCRIPT: Final = frozenset(
    (
        "EvaluateScript",
        "EventDispatch",
        "FireAnimationFrame",
        "FunctionCall",
        "RunMicrotasks",
        "TimerFire",
        "v8.callFunction",
        "v8.run",
    )
)
"""Events of a trace that are script; those inside of another one are counted with it."""


@dataclass
class Trace:
    """What a page's main thread did.

    Args:
        events: of Chromium.
    """

    events: Sequence[Mapping[str, Any]]

    def script_ms(self) -> list[float]:
        """Give the processor time of script in each frame that has any."""
        thread = self._main_thread()
        own = [each for each in self.events if (each["pid"], each["tid"]) == thread]
        frames = sorted(each["ts"] for each in own if each["name"] == FRAME)
        spent: dict[int, float] = {}
        for event in outermost(own):
            frame = bisect_right(frames, event["ts"])
            spent[frame] = spent.get(frame, 0.0) + event.get("tdur", event["dur"]) / US
        return list(spent.values())

    def _main_thread(self) -> tuple[int, int]:
        """Give the process and the thread that ran most script."""
        named = {
            (each["pid"], each["tid"])
            for each in self.events
            if each["name"] == "thread_name" and each["args"]["name"] == MAIN_THREAD
        }
        spent = dict.fromkeys(named, 0.0)
        for event in outermost(self.events):
            thread = (event["pid"], event["tid"])
            if thread in spent:
                spent[thread] += event["dur"]
        return max(spent, key=lambda thread: spent[thread])


def outermost(events: Sequence[Mapping[str, Any]]) -> Iterator[Mapping[str, Any]]:
    """Give the events of script that are in no other one of their thread."""
    whole = [each for each in events if each["name"] in SCRIPT and "dur" in each]
    ends: dict[tuple[int, int], float] = {}
    for event in sorted(whole, key=lambda each: (each["ts"], -each["dur"])):
        thread = (event["pid"], event["tid"])
        if event["ts"] >= ends.get(thread, 0.0):
            ends[thread] = event["ts"] + event["dur"]
            yield event


@dataclass
class Watched:
    """A page whose main thread is traced."""

    session: CDPSession
    traces: dict[str, Trace] = field(default_factory=dict)

    @contextmanager
    def traced(self, name: str) -> Iterator[None]:
        """Keep a trace of what happens inside."""
        events: list[Mapping[str, Any]] = []
        ended: list[object] = []

        def take(told: Mapping[str, Any]) -> None:
            events.extend(told["value"])

        def note(told: object) -> None:
            ended.append(told)

        self.session.on("Tracing.dataCollected", take)
        self.session.once("Tracing.tracingComplete", note)
        self.session.send(
            "Tracing.start",
            {
                "transferMode": "ReportEvents",
                "traceConfig": {"includedCategories": [*CATEGORIES]},
            },
        )
        yield
        self.session.send("Tracing.end")
        while not ended:
            self.session.send("Performance.getMetrics")  # lets its events come
        self.session.remove_listener("Tracing.dataCollected", take)
        self.traces[name] = Trace(events)

    def heap_mib(self) -> float:
        """Collect garbage; give the bytes of the heap that are used."""
        self.session.send("HeapProfiler.collectGarbage")
        told = self.session.send("Runtime.getHeapUsage")
        return round(float(told["usedSize"]) / MIB, 2)


def run(context: Context) -> None:
    """Open a long chat, have two answers written, and look at each frame."""
    if not shutil.which(CHROMIUM):
        raise SkippedError("it takes Debian's Chromium")
    n_messages = context.pick(short=200, full=2000)
    n_rich = context.pick(short=2, full=12)
    answer = tokens_of((RICH + "\n\n") * n_rich)
    with daemons() as make:
        backend = mock(name="rich", tokens=answer, token_delay_ms=5)
        daemon = make({"backend": [backend]}).start()
        with bridge_to(daemon) as bridge, chromium() as browser:
            chat = long_chat(bridge.address, n_messages)
            reader = Reader(browser.new_context(), bridge.address)
            session = reader.context.new_cdp_session(reader.page)
            session.send("Performance.enable")
            session.send("HeapProfiler.enable")
            watched = Watched(session)
            heaps = look(reader, watched, chat)
            reader.context.close()
            context.require(not reader.faults, f"the page did {reader.faults[:1]}")
    context.counts |= {"messages": n_messages, "tokens_of_an_answer": len(answer)}
    report(context, watched, heaps)


def look(reader: Reader, watched: Watched, chat: str) -> list[float]:
    """Open the chat, have answers written; give the size of the heap after each."""
    heaps = []
    with watched.traced("open"):
        reader.open(f"#/chat/{chat}")
        reader.page.locator(".answer").last.wait_for()
    heaps.append(watched.heap_mib())
    for number in (1, 2):
        with watched.traced(f"answer_{number}"):
            reader.say(f"Tell me all of it, {number}")
            reader.page.wait_for_function(IS_ANSWERED, arg=f"{number}")
        heaps.append(watched.heap_mib())
    with watched.traced("scroll"):
        for _ in range(10):
            reader.page.locator(".message").first.scroll_into_view_if_needed()
            reader.page.mouse.wheel(0, -4000)
    return heaps


def long_chat(address: str, n_messages: int) -> str:
    """Store a conversation; give its id."""
    messages = [
        {
            "id": str(number),
            "parent_id": str(number - 1) if number else None,
            "role": "assistant" if number % 2 else "prompter",
            "content": RICH if number % 2 else f"Question {number}",
        }
        for number in range(n_messages)
    ]
    reply = httpx2.post(
        f"{address}/chats/import",
        content=json.dumps({"messages": messages, "title": "long"}),
        headers={"content-type": "application/json"},
        timeout=120,
    )
    reply.raise_for_status()
    return str(reply.json()["id"])


def report(context: Context, watched: Watched, heaps: Sequence[float]) -> None:
    """Check the longest script of each part, and that memory does not grow."""
    for name, trace in watched.traces.items():
        script = trace.script_ms()
        longest = max(script, default=0.0)
        context.counts[f"{name}_frames_with_script"] = len(script)
        context.figures[f"{name}_longest_script_ms"] = round(longest, 1)
        context.require(script, f"{name}: no script was traced")
        context.require_within(longest, MOST_SCRIPT_MS, f"{name}: script in a frame")
    opened, first, second = heaps
    context.figures |= {
        "heap_open_mib": opened,
        "heap_answer_1_mib": first,
        "heap_answer_2_mib": second,
    }
    growth = second - first
    context.expect(growth <= MOST_GROWTH_MIB, f"the heap grew by {growth:.1f} MiB")
    load, *_ = os.getloadavg()
    context.notes.append(
        f"processor time of the page's thread; {os.cpu_count()} cores had a load of {load:.1f}"
    )
