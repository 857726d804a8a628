import socket
import threading
import time
from collections.abc import Sequence
from contextlib import suppress
from queue import SimpleQueue
from threading import Event, Thread
from types import SimpleNamespace

import pytest
from msgspec.structs import replace

from inferd.backend.job import (
    EmbedJob,
    GenerateJob,
    Job,
    RenderedJob,
    RerankJob,
    Sampling,
    Turn,
    needs_compile,
)
from inferd.config.kinds.mock import MockSettings
from inferd.ipc.encoding import MessageSplitter, decode_from_worker, encode
from inferd.ipc.worker import (
    Append,
    Drop,
    Embedded,
    Failed,
    FromWorker,
    GetTokenTable,
    Heartbeat,
    Load,
    Loaded,
    LoadFailed,
    Loading,
    Pause,
    Paused,
    Prepare,
    PromptOverflow,
    PromptReady,
    Refused,
    Resume,
    Run,
    Scored,
    Step,
    TokenTableReply,
    ToWorker,
)
from inferd.memory.plan import MemoryShare
from inferd.worker.backend import (
    LoadError,
    PreparedJob,
    PromptOverflowError,
    RefusedError,
)
from inferd.worker.channel import WorkerChannel, close_fds
from inferd.worker.mock.backend import MockBackend
from inferd.worker.runtime import EXIT_BUG, EXIT_LOAD_FAILED, Runtime
from tests.fakes.fds import contents, memfds, n_open
from tests.fakes.media import job_with
from tests.fakes.memory_coordinator import DEMAND

PATIENCE_S = 60.0
SETTINGS = MockSettings(name="m", tokens=("a", "b", "c"))
ENDLESS = MockSettings(name="m", tokens=("x",) * 1000, token_delay_ms=1)
LOAD = Load(settings=SETTINGS, n_slots=2)
JOB = GenerateJob(
    turns=[Turn("user", "hi")],
    max_tokens=1000,
    sampling=Sampling(temperature=0, top_p=1, top_k=0, seed=0),
)


EMBED = EmbedJob(texts=["a"], dimensions=None, task=None)
RERANK = RerankJob(query="q", documents=["a", "b"])


class Daemon:
    """The daemon's end of a worker."""

    def __init__(self, sock: socket.socket) -> None:
        self.sock = sock
        sock.settimeout(PATIENCE_S)
        self._splitter = MessageSplitter()

    def send(self, *messages: ToWorker) -> None:
        """Send messages at once."""
        self.sock.sendall(b"".join(map(encode, messages)))

    def receive(self) -> FromWorker:
        """Wait for the next message, a sign of life or not."""
        while (payload := self._splitter.next_payload()) is None:
            data = self.sock.recv(65536)
            assert data, "the worker hung up"
            self._splitter.feed(data)
        return decode_from_worker(payload)

    def answer(self) -> FromWorker:
        """Wait for the next message that is no sign of life."""
        deadline = time.monotonic() + PATIENCE_S
        while isinstance(message := self.receive(), Heartbeat):
            assert time.monotonic() < deadline, "the worker only beats"
        return message

    def prepare(self, ticket: int, job: Job = JOB) -> FromWorker:
        """Have a job prepared; give the answer."""
        self.send(Prepare(ticket=ticket, job=job))
        return self.answer()

    def steps_until_over(self, *tickets: int) -> list[Step]:
        """Take steps until these jobs have ended."""
        steps: list[Step] = []
        while {end.ticket for step in steps for end in step.ended} != set(tickets):
            step = self.answer()
            assert isinstance(step, Step)
            steps.append(step)
        return steps


@pytest.fixture
def ends():
    """The two ends of a socketpair."""
    ours, theirs = socket.socketpair()
    with ours, theirs:
        yield Daemon(ours), WorkerChannel(theirs)


@pytest.fixture
def exits(monkeypatch):
    """The codes with which the process would have ended, first to last."""
    codes: SimpleQueue[int] = SimpleQueue()
    monkeypatch.setattr("inferd.worker.runtime.os", SimpleNamespace(_exit=codes.put))
    return codes


@pytest.fixture
def run_worker(ends, exits):
    """Start a worker in threads of the test's own process, and see it end."""
    daemon, link = ends
    threads: list[Thread] = []

    def run(backend=None, *, heartbeat_s=0.02):
        made = backend or MockBackend(SETTINGS)

        def serve():
            with suppress(OSError):  # the test hangs up in the end
                Runtime(link, lambda _: made).serve()

        threads.append(Thread(target=serve))
        threads[0].start()
        load = Load(settings=SETTINGS, n_slots=2, heartbeat_s=heartbeat_s)
        daemon.send(load)
        assert isinstance(daemon.receive(), Loading)
        assert isinstance(daemon.receive(), Loaded)
        return daemon

    yield run
    daemon.sock.shutdown(socket.SHUT_WR)
    for thread in threads:
        exits.get(timeout=PATIENCE_S)
        daemon.sock.close()
        thread.join(PATIENCE_S)
        assert not thread.is_alive()


def exit_code(exits):
    """Wait for the end; the fixture waits for it once more."""
    code = exits.get(timeout=PATIENCE_S)
    exits.put(code)
    return code


# --- load -------------------------------------------------------------------------------


@pytest.mark.parametrize("fault", ["is_broken_file", "is_changed_file"])
def test_a_worker_that_cannot_load_says_why_and_ends(ends, fault):
    class Broken(MockBackend):
        def load(self, _report, share=None):
            raise LoadError("no such model", "no such model: /m.gguf", **{fault: True})

    daemon, link = ends
    daemon.send(LOAD)
    assert Runtime(link, lambda _: Broken(SETTINGS)).serve() == EXIT_LOAD_FAILED
    assert daemon.receive() == LoadFailed(
        reason="no such model", detail="no such model: /m.gguf", **{fault: True}
    )


class Greedy(MockBackend):
    """Demands memory, and tells what it gets."""

    def predict(self, _report):
        return DEMAND

    def load(self, _report, share=None):
        raise LoadError(f"only {share.n_ctx} tokens")


def test_a_demand_is_made_before_the_load_and_its_share_is_taken(ends):
    daemon, link = ends
    daemon.send(LOAD, MemoryShare(n_slots=1, n_ctx=256))
    assert Runtime(link, lambda _: Greedy(SETTINGS)).serve() == EXIT_LOAD_FAILED
    assert daemon.receive() == DEMAND
    assert daemon.receive() == LoadFailed(reason="only 256 tokens")


def test_a_daemon_that_does_not_answer_a_demand_ends_the_worker(ends):
    daemon, link = ends
    runtime = Runtime(link, lambda _: Greedy(SETTINGS))
    daemon.send(LOAD, Run(ticket=1))
    with pytest.raises(RuntimeError, match="expected a MemoryShare"):
        runtime.serve()


def test_a_library_that_is_not_there_is_told_in_one_line(ends):
    def make(_):
        raise LoadError("no llama.cpp")

    daemon, link = ends
    daemon.send(LOAD)
    assert Runtime(link, make).serve() == EXIT_LOAD_FAILED
    assert daemon.receive() == LoadFailed(reason="no llama.cpp")


def test_the_first_message_is_load_or_the_worker_ends(ends):
    daemon, link = ends
    daemon.send(Run(ticket=1))
    assert Runtime(link, lambda _: MockBackend(SETTINGS)).serve() == EXIT_BUG


# --- a job's life -----------------------------------------------------------------------


def test_a_job_is_prepared_run_and_ended(run_worker):
    daemon = run_worker()
    assert daemon.prepare(7) == PromptReady(ticket=7, prompt_tokens=0)
    daemon.send(Run(ticket=7))
    steps = daemon.steps_until_over(7)
    assert [step.pieces for step in steps] == [[(7, b"a")], [(7, b"b")], [(7, b"c")]]


def test_jobs_run_beside_each_other(run_worker):
    daemon = run_worker()
    for ticket in (1, 2):
        daemon.prepare(ticket)
    daemon.send(Run(ticket=1), Run(ticket=2))
    steps = daemon.steps_until_over(1, 2)
    said = [piece for step in steps for piece in step.pieces]
    for ticket in (1, 2):
        assert [text for each, text in said if each == ticket] == [b"a", b"b", b"c"]


class Critic(MockBackend):
    """Refuses what it is told to."""

    failure: Exception

    def prepare(self, _job, fds=()):
        raise self.failure


@pytest.mark.parametrize(
    ("failure", "answer"),
    [
        (RefusedError("bad grammar"), Refused(ticket=7, reason="bad grammar")),
        (PromptOverflowError(9, 8), PromptOverflow(ticket=7, prompt_tokens=9, n_ctx=8)),
        (
            PromptOverflowError(20, 8, at_least=True),
            PromptOverflow(ticket=7, prompt_tokens=20, n_ctx=8, at_least=True),
        ),
    ],
)
def test_a_job_that_cannot_be_served_is_refused(run_worker, failure, answer):
    critic = Critic(SETTINGS)
    critic.failure = failure
    assert run_worker(critic).prepare(7) == answer


def test_vectors_and_scores_are_messages_of_their_own_and_nothing_is_said_beside(
    run_worker,
):
    daemon = run_worker()
    for ticket, job, kind in ((1, EMBED, Embedded), (2, RERANK, Scored)):
        assert daemon.prepare(ticket, job) == PromptReady(
            ticket=ticket, prompt_tokens=0
        )
        daemon.send(Run(ticket=ticket))
        outcome = daemon.answer()
        assert isinstance(outcome, kind)
        assert outcome.ticket == ticket
    assert daemon.prepare(3) == PromptReady(ticket=3, prompt_tokens=0)


def test_an_error_of_the_library_fails_one_job(run_worker, capsys):
    critic = Critic(SETTINGS)
    critic.failure = ZeroDivisionError("secret")
    daemon = run_worker(critic)
    for ticket in (7, 8):
        answer = daemon.prepare(ticket)
        assert isinstance(answer, Failed)
        assert answer.ticket == ticket
        assert "ZeroDivisionError" in answer.reason
        assert "secret" not in answer.reason
    assert "secret" in capsys.readouterr().err


def test_a_running_job_that_is_dropped_says_no_more(run_worker):
    daemon = run_worker(MockBackend(ENDLESS))
    daemon.prepare(1)
    daemon.send(Run(ticket=1))
    assert isinstance(daemon.answer(), Step)
    daemon.send(Drop(ticket=1))
    while not isinstance(message := daemon.receive(), Heartbeat):
        assert isinstance(message, Step)
        assert not message.ended
    assert daemon.prepare(2) == PromptReady(ticket=2, prompt_tokens=0)


def test_a_running_job_is_paused_and_goes_on(run_worker):
    daemon = run_worker(MockBackend(ENDLESS))
    daemon.prepare(1)
    for message in (Run(ticket=1), Pause(ticket=1)):
        daemon.send(message)
    while not isinstance(daemon.receive(), Paused):
        pass
    assert isinstance(daemon.receive(), Heartbeat)
    daemon.send(Resume(ticket=1))
    assert isinstance(daemon.answer(), Step)


def test_a_drop_of_a_job_that_nobody_knows_is_nothing(run_worker):
    daemon = run_worker()
    daemon.send(Drop(ticket=9))
    assert daemon.prepare(1) == PromptReady(ticket=1, prompt_tokens=0)
    daemon.send(Run(ticket=1))
    daemon.steps_until_over(1)
    daemon.send(Drop(ticket=1))
    assert daemon.prepare(1) == PromptReady(ticket=1, prompt_tokens=0)


class Slow(MockBackend):
    """Prepares when it is let, and hears of every drop."""

    def __init__(self):
        super().__init__(SETTINGS)
        self.has_begun = Event()
        self.is_let = Event()
        self.dropped: SimpleQueue[object] = SimpleQueue()

    def prepare(self, job, fds=()):
        self.has_begun.set()
        assert self.is_let.wait(PATIENCE_S)
        return super().prepare(job)

    def interrupt(self, ticket):
        self.dropped.put(ticket)


@pytest.mark.parametrize("dropped", [1, 2])
def test_every_prepare_is_answered_wanted_or_not(run_worker, dropped):
    slow = Slow()
    daemon = run_worker(slow)
    daemon.send(Prepare(ticket=1, job=JOB))
    assert slow.has_begun.wait(PATIENCE_S)
    daemon.send(Prepare(ticket=2, job=JOB), Drop(ticket=dropped))
    assert slow.dropped.get(timeout=PATIENCE_S) == dropped
    slow.is_let.set()
    assert daemon.answer() == PromptReady(ticket=1, prompt_tokens=0)
    assert daemon.answer() == PromptReady(ticket=2, prompt_tokens=0)


def test_a_job_dropped_while_it_is_prepared_is_forgotten(run_worker, exits):
    slow = Slow()
    daemon = run_worker(slow)
    daemon.send(Prepare(ticket=1, job=JOB), Drop(ticket=1))
    assert slow.dropped.get(timeout=PATIENCE_S) == 1
    slow.is_let.set()
    assert daemon.answer() == PromptReady(ticket=1, prompt_tokens=0)
    daemon.send(Run(ticket=1))
    assert exit_code(exits) == EXIT_BUG


# --- media -------------------------------------------------------------------------------


class Keeper(PreparedJob):
    """A job that holds its descriptors until it is over."""

    prompt_tokens = 0

    def __init__(self, fds):
        self.fds = fds

    def close(self):
        close_fds(self.fds)


class Keeping(Slow):
    """Prepares jobs with media, when it is let, and refuses the rest."""

    started: Keeper

    def prepare(self, job, fds=()):
        super().prepare(JOB)
        if len(fds) != 2:
            raise RefusedError("two")
        return Keeper(fds)

    def start(self, _ticket, prepared):
        self.started = prepared
        self.interrupt(_ticket)


def send_media(daemon, *texts):
    """Have a job with such media prepared, as ticket 1."""
    with memfds(*texts) as fds:
        message = encode(Prepare(ticket=1, job=job_with(len(texts))))
        socket.send_fds(daemon.sock, [message], fds)


def test_a_job_that_runs_has_its_media(run_worker):
    keeping = Keeping()
    keeping.is_let.set()
    daemon = run_worker(keeping)
    send_media(daemon, b"a", b"b")
    assert isinstance(daemon.answer(), PromptReady)
    daemon.send(Run(ticket=1))
    assert keeping.dropped.get(timeout=PATIENCE_S) == 1
    assert contents(keeping.started.fds) == [b"a", b"b"]


def test_the_media_of_a_refused_job_are_let_go(run_worker):
    keeping = Keeping()
    keeping.is_let.set()
    daemon = run_worker(keeping)
    before = n_open()
    send_media(daemon, b"a")
    assert daemon.answer() == Refused(ticket=1, reason="two")
    assert n_open() == before


@pytest.mark.parametrize("is_prepared", [True, False])
def test_the_media_of_a_job_dropped_before_it_runs_are_let_go(run_worker, is_prepared):
    keeping = Keeping()
    daemon = run_worker(keeping)
    before = n_open()
    send_media(daemon, b"a", b"b")
    if is_prepared:
        keeping.is_let.set()
        assert isinstance(daemon.answer(), PromptReady)
    daemon.send(Drop(ticket=1))
    assert keeping.dropped.get(timeout=PATIENCE_S) == 1
    if not is_prepared:
        keeping.is_let.set()
        assert isinstance(daemon.answer(), PromptReady)
    assert n_open() == before


class Listener(Keeping):
    """Tells what it hears of more sound, and when it began."""

    def start(self, ticket, prepared):
        super().start(ticket, prepared)
        contents(prepared.fds)

    def append_audio(self, ticket, n_bytes, *, is_last):
        self.dropped.put((ticket, n_bytes, is_last))


def test_audio_that_comes_before_the_run_is_applied_after_its_start(run_worker):
    listener = Listener()
    listener.is_let.set()
    daemon = run_worker(listener)
    send_media(daemon, b"a", b"b")
    daemon.send(Append(ticket=1, n_bytes=4), Append(ticket=1, n_bytes=8))
    assert isinstance(daemon.answer(), PromptReady)
    daemon.send(Run(ticket=1))
    told = [listener.dropped.get(timeout=PATIENCE_S) for _ in range(2)]
    daemon.send(Append(ticket=1, n_bytes=12, is_last=True))
    told.append(listener.dropped.get(timeout=PATIENCE_S))
    assert told == [1, (1, 8, False), (1, 12, True)]


class Busy(Listener):
    """Computes while more sound comes."""

    def __init__(self):
        super().__init__()
        self.is_done = Event()
        self.has_read = Event()

    def start(self, ticket, prepared):
        super().start(ticket, prepared)
        self.is_done.wait(PATIENCE_S)

    def interrupt(self, ticket):
        super().interrupt(ticket)
        if ticket == 7:
            self.has_read.set()


def test_appends_during_a_computation_are_applied_once(run_worker):
    busy = Busy()
    busy.is_let.set()
    daemon = run_worker(busy)
    send_media(daemon, b"a", b"b")
    assert isinstance(daemon.answer(), PromptReady)
    daemon.send(Run(ticket=1))
    assert busy.dropped.get(timeout=PATIENCE_S) == 1
    daemon.send(*(Append(ticket=1, n_bytes=4 * n) for n in range(100)))
    daemon.send(Append(ticket=1, n_bytes=400, is_last=True), Drop(ticket=7))
    assert busy.has_read.wait(PATIENCE_S)
    busy.is_done.set()
    told = [busy.dropped.get(timeout=PATIENCE_S) for _ in range(2)]
    assert told == [7, (1, 400, True)]


def test_audio_of_a_dropped_job_is_ignored(run_worker):
    listener = Listener()
    listener.is_let.set()
    daemon = run_worker(listener)
    send_media(daemon, b"a", b"b")
    daemon.send(Append(ticket=1, n_bytes=4), Drop(ticket=1))
    assert isinstance(daemon.answer(), PromptReady)
    send_media(daemon, b"a", b"b")
    assert isinstance(daemon.answer(), PromptReady)
    daemon.send(Run(ticket=1), Append(ticket=1, n_bytes=8))
    told = [listener.dropped.get(timeout=PATIENCE_S) for _ in range(3)]
    assert told == [1, 1, (1, 8, False)]


# --- the end ----------------------------------------------------------------------------


def test_a_worker_whose_daemon_is_gone_ends(run_worker, exits):
    run_worker().sock.shutdown(socket.SHUT_WR)
    assert exit_code(exits) == 0


@pytest.mark.parametrize("message", [Run(ticket=9), LOAD])
def test_a_daemon_that_is_out_of_step_ends_the_worker(run_worker, exits, message):
    run_worker().send(message)
    assert exit_code(exits) == EXIT_BUG


def test_a_bug_in_one_thread_ends_the_whole_worker(
    run_worker, exits, capsys, monkeypatch
):
    buggy = MockBackend(SETTINGS)
    monkeypatch.setattr(buggy, "interrupt", lambda _: 1 / 0)
    run_worker(buggy).send(Drop(ticket=1))
    assert exit_code(exits) == EXIT_BUG
    assert "ZeroDivisionError: division" in capsys.readouterr().err


# --- signs of life ----------------------------------------------------------------------


class Asked(MockBackend):
    """Counts how often it is asked whether there is something to do."""

    n_asked = 0

    @property
    def is_busy(self):
        self.n_asked += 1
        return super().is_busy


@pytest.mark.alone
def test_an_idle_worker_sends_heartbeats_and_sleeps(run_worker):
    asked, began_s = Asked(SETTINGS), time.monotonic()
    daemon = run_worker(asked, heartbeat_s=0.02)
    assert [daemon.receive() for _ in range(3)] == [Heartbeat()] * 3
    n_beats = (time.monotonic() - began_s) / 0.02
    assert asked.n_asked < 50 + 3 * n_beats


def test_a_worker_that_only_gets_drops_sends_heartbeats(run_worker):
    daemon = run_worker(heartbeat_s=0.1)
    daemon.sock.settimeout(0.002)
    deadline = time.monotonic() + PATIENCE_S
    while time.monotonic() < deadline:
        daemon.send(Drop(ticket=9))
        with suppress(TimeoutError):
            assert daemon.receive() == Heartbeat()
            return
    pytest.fail("no sign of life")


def test_a_token_table_is_sent_while_jobs_are_prepared(run_worker):
    daemon = run_worker()
    daemon.send(GetTokenTable())
    assert daemon.answer() == TokenTableReply(token_table=b"")
    assert isinstance(daemon.prepare(1), PromptReady)


class Compiler(MockBackend):
    """Takes for ever over what it compiles, until it is let."""

    def __init__(self) -> None:
        super().__init__(SETTINGS)
        self.is_let = threading.Event()

    def prepare(self, job: Job, fds: Sequence[int] = ()) -> PreparedJob:
        if needs_compile(job):
            assert self.is_let.wait(PATIENCE_S)
        return super().prepare(job, fds)


def test_a_long_compile_delays_no_other_prompt(run_worker):
    backend = Compiler()
    daemon = run_worker(backend)
    held = replace(JOB, rendered=RenderedJob(pieces=("hi",), grammar="start:"))
    daemon.send(Prepare(ticket=1, job=held))
    assert daemon.prepare(2) == PromptReady(ticket=2, prompt_tokens=0)
    backend.is_let.set()
    assert daemon.answer() == PromptReady(ticket=1, prompt_tokens=0)
