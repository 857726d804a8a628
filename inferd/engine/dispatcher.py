"""Dispatch of a worker's messages, by type, to the parts of its session."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from inferd.engine.channel.demultiplexer import Demultiplexer
from inferd.engine.channel.run_control import RunControl
from inferd.engine.supervisor.watchdog import Watchdog
from inferd.ipc.worker import (
    AudioNeeded,
    Embedded,
    Failed,
    FromWorker,
    Paused,
    PromptOverflow,
    PromptReady,
    Refused,
    Scored,
    Step,
    Transcribed,
    TranscriptEnded,
)


@dataclass(frozen=True, slots=True)
class Dispatcher:
    """Dispatcher of the messages that the validator has passed.

    Replies to prepares come from another thread of the worker, so that they are no
    progress of its running jobs.

    Args:
        demux: gets the results.
        watchdog: gets the signs of life and of progress.
        controls: of the running jobs, by ticket; notified of pauses.
        on_prepare_reply: called with the ticket of a job whose prepare is answered, and of
            any job that failed.
    """

    demux: Demultiplexer
    watchdog: Watchdog
    controls: Mapping[int, RunControl]
    on_prepare_reply: Callable[[int], object]

    def dispatch(  # noqa: C901, PLR0912, PLR0915  # a case for each type of message
        self, message: FromWorker, now: float
    ) -> None:
        """Dispatch a message that was received at a time on trio's clock."""
        self.watchdog.message_received(now)
        match message:
            case Step():
                self.watchdog.progress(now)
                for end in message.ended:
                    self.watchdog.job_ended(end.ticket)
                self.demux.put_step(message)
            case Embedded(ticket=ticket, is_last=False):
                self.watchdog.progress(now)
                self.demux.put(ticket, message)
            case (
                Embedded(ticket=ticket)
                | Scored(ticket=ticket)
                | TranscriptEnded(ticket=ticket)
            ):
                self.watchdog.progress(now)
                self.watchdog.job_ended(ticket)
                self.demux.finish(ticket, message)
            case Transcribed(ticket=ticket):
                self.watchdog.audio_progress(ticket, now)
                self.demux.put_transcribed(message)
            case (
                PromptReady(ticket=ticket)
                | Refused(ticket=ticket)
                | PromptOverflow(ticket=ticket)
            ):
                self.on_prepare_reply(ticket)
                self.demux.put(ticket, message)
            case Failed(ticket=ticket):
                self.on_prepare_reply(ticket)
                self.watchdog.job_failed(ticket, now)
                self.demux.put_final(ticket, message)
            case Paused(ticket=ticket):
                self.watchdog.job_paused(ticket, now)
                if control := self.controls.get(ticket):
                    control.paused()
            case AudioNeeded(ticket=ticket, until_bytes=until_bytes):
                if control := self.controls.get(ticket):
                    control.audio_needed(until_bytes)
            case _:
                pass  # a heartbeat: the validator has refused all others
