from collections.abc import Callable
from contextlib import asynccontextmanager

import pytest
import trio
import trio.testing

from inferd.admission.control import Admission, RequestTraits
from inferd.backend.caller import Caller
from inferd.backend.interface import BackendState, StartFailedError
from inferd.config.settings import LimitSettings
from inferd.engine.supervisor.restart_policy import RestartDelay
from inferd.errors import BackendNotReadyError
from inferd.ipc.worker import Loading
from inferd.residency.residency import ModelState, TurnRules
from inferd.server.loading.loader import ModelLoader
from inferd.server.loading.model import DemandModel
from inferd.server.queue.requests import RequestQueue

LOAD_S, UNLOAD_S = 4.0, 1.0
MIB = 2**20
LIMITS = LimitSettings(breaker_deaths=2, breaker_open_s=30)
RULES = TurnRules(min_residency_s=5, longest_wait_s=10)


class SlowEngine:
    """An engine whose loads take time, or fail."""

    def __init__(self, name: str) -> None:
        self.name = self.key = name
        self.on_loading: Callable[[Loading], None] | None = None
        self.find_state: Callable[[], BackendState] | None = None
        self.unavailable: str | None = None
        self.fault = ""
        self.reserve: Callable[[], bool] = lambda: True
        self.n_loads = 0
        self.is_loaded = False
        self.failures: list[str] = []

    async def load(self, on_ready: Callable[[], None]) -> None:
        self.n_loads += 1
        assert self.on_loading is not None
        self.on_loading(Loading(phase="mmap"))
        try:
            await trio.sleep(LOAD_S)
            if not self.reserve():
                raise StartFailedError("it needs more")
            if self.fault:
                raise StartFailedError(f"{self.fault} in /secret", reason=self.fault)
            self.is_loaded = True
            on_ready()
            await trio.sleep_forever()
        finally:
            with trio.CancelScope(shield=True):
                await trio.sleep(UNLOAD_S if self.is_loaded else 0)
            self.is_loaded = False

    def detach(self) -> None:
        pass

    def stop(self, reason: str) -> None:
        self.unavailable = reason

    def load_failed(self, reason: str, *, is_out_of_service: bool) -> None:
        self.failures.append(reason)
        self.unavailable = reason if is_out_of_service else None

    def back_in_service(self) -> None:
        self.unavailable = None


class Heard:
    """What a status board is told."""

    def __init__(self) -> None:
        self.told: list[tuple[str, str]] = []

    def died(self, backend: str, reason: str, pause: RestartDelay) -> None:
        self.told.append((backend, reason))

    def unloaded(self, backend: str) -> None:
        self.told.append((backend, "unloaded"))

    def removed(self, backend: str) -> None:
        self.told.append((backend, "removed"))


class Home:
    """A loader with two models, in memory for one, and their queue."""

    def __init__(self, *, budget: int = 100, keep_alive_s: float = 0) -> None:
        self.heard = Heard()
        self.loader = ModelLoader(rules=RULES, observer=self.heard)
        self.engines = {name: SlowEngine(name) for name in ("a", "b")}
        for engine in self.engines.values():
            self.loader.add(engine, keep_alive_s, LIMITS)
        self.queue = RequestQueue(Admission(max_active=2, max_queued=20))
        self.queue.observer = self.loader
        self.budget = budget * MIB
        self.nursery: trio.Nursery

    @asynccontextmanager
    async def opened(self):
        self.loader.open(self.budget, lambda _: 60 * MIB, self.queue)
        with trio.fail_after(10_000):
            async with trio.open_nursery() as self.nursery:
                self.nursery.start_soon(self.loader.run)
                yield self
                self.nursery.cancel_scope.cancel()

    async def ask(
        self,
        backend: str,
        runs_s: float = 1.0,
        *,
        uid: int = 1,
        keep_alive_s: float | None = None,
    ) -> float:
        """Serve a request; return when it started."""
        traits = RequestTraits(Caller(uid), backend=backend)
        with self.queue.admitted(traits, keep_alive_s=keep_alive_s) as permit:
            await self.loader.wait_loaded(backend)
            await permit.wait()
            assert self.engines[backend].is_loaded
            started_at = trio.current_time()
            await trio.sleep(runs_s)
            assert self.engines[backend].is_loaded
            return started_at


async def test_one_load_serves_all_who_wait(autojump_clock):
    async with Home().opened() as home:
        async with trio.open_nursery() as clients:
            for _ in range(5):
                clients.start_soon(home.ask, "a")
        assert home.engines["a"].n_loads == 1
        assert trio.current_time() == LOAD_S + 3  # two at a time


async def test_requests_that_wait_for_a_model_hold_no_permit(autojump_clock):
    async with Home(budget=200).opened() as home, trio.open_nursery() as clients:
        await home.ask("b")
        for _ in range(5):
            clients.start_soon(home.ask, "a")
        await trio.testing.wait_all_tasks_blocked()
        assert home.queue.count_active() == 0
        assert await home.ask("b") == LOAD_S + 1


async def test_a_model_in_use_is_unloaded_for_another_after_the_longest_wait(
    autojump_clock,
):
    async with Home().opened() as home, trio.open_nursery() as clients:
        for number in range(40):
            clients.start_soon(ask_later, home, "a", float(number))
        await trio.sleep(6)
        began_at = trio.current_time()
        started_at = await home.ask("b")
        least_s = RULES.longest_wait_s + UNLOAD_S + LOAD_S
        assert least_s <= started_at - began_at <= least_s + 1  # what runs then ends
    assert home.engines["a"].n_loads == 2


async def ask_later(home: Home, backend: str, seconds: float) -> None:
    await trio.sleep(seconds)
    await home.ask(backend, runs_s=1.0)


async def test_a_failed_load_fails_all_who_waited_and_opens_the_breaker(
    autojump_clock,
):
    refused: list[str] = []

    async def fail(home: Home) -> None:
        with pytest.raises(BackendNotReadyError) as error:
            await home.ask("a")
        refused.append(str(error.value))

    async with Home().opened() as home:
        home.engines["a"].fault = "it is broken"
        async with trio.open_nursery() as clients:
            for _ in range(3):
                clients.start_soon(fail, home)
        assert refused == ["backend not ready: it is broken"] * 3
        assert home.engines["a"].n_loads == 1
        assert home.heard.told == [("a", "it is broken in /secret")]
        await fail(home)
        assert home.engines["a"].n_loads == 2
        await fail(home)
        assert home.engines["a"].n_loads == 2
        home.engines["a"].fault = ""
        await trio.sleep(LIMITS.breaker_open_s + 1)
        assert await home.ask("a") == trio.current_time() - 1


async def test_a_failed_load_fails_requests_that_were_prepared_before(autojump_clock):
    async with Home().opened() as home, trio.open_nursery() as clients:
        clients.start_soon(home.ask, "a", 30)
        clients.start_soon(home.ask, "a", 30)
        await trio.sleep(LOAD_S + 1)
        traits = RequestTraits(Caller(1), backend="a")
        with home.queue.admitted(traits) as permit:  # waits behind the two
            home.engines["a"].fault = "it is broken"
            clients.start_soon(home.ask, "b")
            await trio.sleep(30 + UNLOAD_S + LOAD_S + 2)
            with pytest.raises(BackendNotReadyError):
                await permit.wait()


async def test_what_does_not_fit_is_refused_with_the_numbers(autojump_clock):
    async with Home(budget=59).opened() as home:
        with pytest.raises(BackendNotReadyError, match="60 MiB .* 59 MiB are left"):
            await home.ask("a")


async def test_the_phases_of_a_load_are_told_to_those_who_ask(autojump_clock):
    phases: list[str] = []

    async def tell(loading: Loading) -> None:
        phases.append(loading.phase)

    async with Home().opened() as home:
        home.loader.arrived("a")
        await home.loader.wait_loaded("a", tell)
        home.loader.left("a", has_started=False, user=1)
    assert phases == ["mmap"]


async def test_an_idle_model_is_unloaded_and_the_status_is_told(autojump_clock):
    async with Home(keep_alive_s=7).opened() as home:
        await home.ask("a")
        assert home.loader.state("a") is ModelState.READY
        await trio.sleep(7 + UNLOAD_S + 1)
        assert home.loader.state("a") is ModelState.UNLOADED
        assert home.heard.told == [("a", "unloaded")]


async def test_other_backends_pass_the_loader(autojump_clock):
    loader = ModelLoader()
    loader.arrived("x")
    await loader.wait_loaded("x")
    loader.started("x")
    loader.left("x", has_started=True, user=1)
    assert loader.state("x") is None
    loader.stop("the end")


async def test_an_operator_loads_and_unloads_a_model(autojump_clock):
    async with Home().opened() as home:
        await home.loader.load("a")
        assert home.engines["a"].is_loaded
        await home.loader.load("a")
        assert home.engines["a"].n_loads == 1
        await home.loader.unload("a")
        assert not home.engines["a"].is_loaded
        await home.loader.unload("a")
        home.engines["a"].fault = "it is broken"
        with pytest.raises(BackendNotReadyError, match="it is broken"):
            await home.loader.load("a")


async def test_an_unload_waits_for_running_requests(autojump_clock):
    async with Home().opened() as home, trio.open_nursery() as clients:
        clients.start_soon(home.ask, "a", 20)
        await trio.sleep(LOAD_S + 1)
        await home.loader.unload("a")
        assert trio.current_time() == LOAD_S + 20 + UNLOAD_S


async def test_a_load_that_another_operator_takes_back_is_refused(autojump_clock):
    async with Home().opened() as home, trio.open_nursery() as operators:
        operators.start_soon(home.ask, "a", 20)
        await trio.sleep(1)

        async def load() -> None:
            with pytest.raises(BackendNotReadyError, match="meanwhile"):
                await home.loader.load("b")

        operators.start_soon(load)
        await trio.sleep(1)
        await home.loader.unload("b")


async def test_those_who_wait_for_a_load_fail_when_the_daemon_stops(autojump_clock):
    async with Home().opened() as home, trio.open_nursery() as clients:

        async def fail() -> None:
            with pytest.raises(BackendNotReadyError, match="the end"):
                await home.ask("a")

        clients.start_soon(fail)
        await trio.sleep(1)
        home.loader.stop("the end")


async def test_a_model_that_is_removed_while_it_fails_to_load_is_told(autojump_clock):
    for _ in range(10):  # which of two tasks runs first is by chance
        async with Home().opened() as home:
            home.engines["a"].fault = "it is broken"

            async def load(home: Home = home) -> None:
                with pytest.raises(BackendNotReadyError):
                    await home.loader.load("a")

            home.nursery.start_soon(load)
            await trio.sleep(1)
            home.loader.retire("a")
            await trio.sleep(LOAD_S)
            assert not home.loader.knows("a")


async def test_an_unload_that_another_operator_takes_back_is_refused(autojump_clock):
    async with Home().opened() as home, trio.open_nursery() as tasks:
        tasks.start_soon(home.ask, "a", 20)
        await trio.sleep(LOAD_S + 1)

        async def unload() -> None:
            with pytest.raises(BackendNotReadyError, match="again meanwhile"):
                await home.loader.unload("a")

        tasks.start_soon(unload)
        await trio.sleep(1)
        await home.loader.load("a")


async def test_requests_are_refused_when_a_model_that_stays_leaves_no_room(
    autojump_clock,
):
    async with Home().opened() as home, trio.open_nursery() as clients:
        clients.start_soon(home.ask, "a", 30)
        clients.start_soon(home.ask, "a", 30)
        await trio.sleep(LOAD_S + 1)
        with home.queue.admitted(RequestTraits(Caller(1), backend="a")) as permit:
            home.loader.begin(DemandModel(SlowEngine("c"), 0, LIMITS), 60 * MIB)
            await home.loader.load("c")
            home.loader.pin("c")
            with pytest.raises(BackendNotReadyError, match="40 MiB are left"):
                await permit.wait()
        home.loader.retire("c")
        await home.ask("a")


async def test_a_retired_model_serves_all_that_have_arrived_for_it(autojump_clock):
    async with Home().opened() as home, trio.open_nursery() as clients:
        for _ in range(6):  # two at a time, longer than the longest wait
            clients.start_soon(home.ask, "a", 20)
        await trio.sleep(LOAD_S + 1)
        home.loader.begin(DemandModel(SlowEngine("c"), 0, LIMITS), 60 * MIB)
        home.loader.retire("a")
        await home.loader.load("c")
        home.loader.pin("c")
        assert trio.current_time() == LOAD_S + 60 + UNLOAD_S + LOAD_S


async def test_a_model_that_has_grown_waits_for_so_much_memory_and_nobody_fails(
    autojump_clock,
):
    async with Home(budget=130).opened() as home, trio.open_nursery() as clients:
        a = home.engines["a"]
        a.reserve = lambda: home.loader.reserve("a", 80 * MIB)
        clients.start_soon(home.ask, "b", 20)
        await trio.sleep(LOAD_S + 1)
        began_at = trio.current_time()
        assert await home.ask("a") >= began_at + 15  # what runs on "b" ends first
        assert (a.n_loads, a.failures) == (2, [])


async def test_a_model_that_has_grown_too_large_is_refused_with_the_numbers(
    autojump_clock,
):
    async with Home(budget=130).opened() as home:
        a = home.engines["a"]
        a.reserve = lambda: home.loader.reserve("a", 140 * MIB)
        with pytest.raises(BackendNotReadyError, match="140 MiB .* 130 MiB are left"):
            await home.ask("a")
        assert a.n_loads == 1
        assert await home.ask("b") > 0


async def test_who_waits_for_a_load_is_told_that_the_backend_was_removed(
    autojump_clock,
):
    async with Home().opened() as home, trio.open_nursery() as clients:
        clients.start_soon(home.ask, "a", 30)
        await trio.sleep(LOAD_S + 1)

        told = trio.Event()

        async def load() -> None:
            with pytest.raises(BackendNotReadyError):
                await home.loader.load("b")
            told.set()

        clients.start_soon(load)
        await trio.testing.wait_all_tasks_blocked()
        home.loader.retire("b")
        await trio.testing.wait_all_tasks_blocked()
        assert told.is_set()
        assert not home.loader.knows("b")
