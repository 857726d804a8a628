"""Tell whether a worker hangs: it is silent, or it beats and gets nowhere with its jobs."""

import math

import trio

from inferd.ipc import Embedded, Failed, FromWorker, Scored, Step


class Pulse:
    """When a worker last said a word, and when it last got on with what it runs.

    Of the jobs that run, one has to get on: what waits in the worker for others is not
    told apart from what it has forgotten.

    Args:
        now: seconds, on trio's clock, as all times here.
    """

    def __init__(self, now: float) -> None:
        self._heard_at = now
        self._got_on_at = now
        self._running: set[int] = set()

    def began(self, ticket: int, now: float) -> None:
        """Note that a job is to run."""
        if not self._running:
            self._got_on_at = now
        self._running.add(ticket)

    def is_over(self, ticket: int) -> None:
        """Note that nothing more is wanted of a job, if it ran."""
        self._running.discard(ticket)

    def heard(self, message: FromWorker, now: float) -> None:
        """Note a word of the worker's: answers to prompts come from another thread."""
        self._heard_at = now
        match message:
            case Step(ended=ended):
                self._got_on_at = now
                for end in ended:
                    self.is_over(end.ticket)
            case Embedded(is_last=False):
                self._got_on_at = now
            case Embedded(ticket=ticket) | Scored(ticket=ticket):
                self._got_on_at = now
                self.is_over(ticket)
            case Failed(ticket=ticket) if ticket in self._running:
                self._got_on_at = now
                self.is_over(ticket)
            case _:
                pass

    def deadline(self, silence_s: float) -> float:
        """Tell when it counts as hung, unless something is heard before."""
        return silence_s + min(
            self._heard_at, self._got_on_at if self._running else math.inf
        )

    async def run_out(self, silence_s: float) -> str:
        """Wait until it hangs; give the reason. One task instead of a deadline a message.

        Args:
            silence_s: seconds that it may be silent, or run jobs and get nowhere.
        """
        self._heard_at = trio.current_time()
        while (  # noqa: ASYNC110  # an event a message is what this avoids
            deadline := self.deadline(silence_s)
        ) > trio.current_time():
            await trio.sleep_until(deadline)
        if self._heard_at + silence_s > trio.current_time():
            return f"hung: no progress for {silence_s:g} s"
        return no_word(silence_s)


def no_word(silence_s: float) -> str:
    """Say that a worker was silent for too long."""
    return f"hung: no word for {silence_s:g} s"
