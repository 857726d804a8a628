import math
from collections.abc import Callable, Sequence
from contextlib import asynccontextmanager

import msgspec
import pytest
import trio
import trio.testing
from structlog.testing import capture_logs

from inferd.backend.interface import Backend, StartFailedError
from inferd.config.kinds.llamacpp import LlamaCppSettings
from inferd.config.served import NOTHING_SERVED, RefusedModel, StoreModel, StoreView
from inferd.config.settings import (
    BackendSettings,
    Config,
    ConfigError,
    LimitSettings,
    ModelsSettings,
)
from inferd.errors import BackendNotReadyError
from inferd.ipc.worker import Loading
from inferd.limits.residency import (
    MAX_HEADER_READS,
    MAX_OPENED_MODELS,
    STORE_LOOK_S,
)
from inferd.routing import ModelNames
from inferd.server.loading.store_models import StoreModels
from tests.fakes.backend import ScriptedBackend

READ_S, LOOK_S = 0.5, 0.01
BREAKER_S = 30.0


def model(name: str, version: int = 1, blob: str = "") -> StoreModel:
    """Make the model of a name; each version has a manifest of its own."""
    path = blob or f"/store/blobs/{name}-{version}"
    return StoreModel(LlamaCppSettings(name=name, model=path), (0, version, 0, 0))


class Serving:
    """What serves: it reads headers, which takes time, and may fail."""

    def __init__(self) -> None:
        self.served: list[Backend] = []
        self.engines: dict[str, ScriptedBackend] = {}
        self.busy: set[str] = set()
        self.reads: list[str] = []
        self.n_reading = self.most_reading = 0
        self.faults: dict[str, Exception] = {}
        self.on_broken: dict[str, Callable[[str], None]] = {}

    async def add(
        self,
        settings: BackendSettings,
        on_broken: Callable[[str], None],
        on_loading: Callable[[Loading], None],
    ) -> Backend:
        self.reads.append(settings.name)
        on_loading(Loading(phase="checking_local"))
        self.n_reading += 1
        self.most_reading = max(self.most_reading, self.n_reading)
        await trio.sleep(READ_S)
        self.n_reading -= 1
        if fault := self.faults.get(settings.name):
            raise fault
        self.on_broken[settings.name] = on_broken
        backend = ScriptedBackend(name=settings.name, is_ready=False)
        self.served.append(backend)
        self.engines[settings.name] = backend
        return backend

    def remove(self, backend: Backend) -> None:
        self.served.remove(backend)

    def is_idle(self, backend: Backend) -> bool:
        return backend.name not in self.busy

    def __contains__(self, backend: Backend) -> bool:
        return backend in self.served

    @property
    def names(self) -> list[str]:
        return [each.name for each in self.served]


class Home:
    """A store that a test changes, and what serves its models."""

    def __init__(
        self,
        *names: str,
        serve: bool | Sequence[str] = True,
        backends: Sequence[str] = (),
    ) -> None:
        self.view = StoreView({name: model(name) for name in names})
        self.looks: list[float] = []
        self.look_s = LOOK_S
        self.serving = Serving()
        self.names = ModelNames(dict.fromkeys(backends, ()))
        kept = serve if isinstance(serve, bool) else tuple(serve)
        config = Config(
            models=ModelsSettings(serve=kept),
            limits=LimitSettings(breaker_open_s=BREAKER_S),
        )
        self.told: list[tuple[str, str]] = []
        self.models = StoreModels(config, self.look, self.names, self.tell)

    def tell(self, name: str, loading: Loading) -> None:
        self.told.append((name, loading.phase))

    async def look(self, models: ModelsSettings, _before: StoreView) -> StoreView:
        self.looks.append(trio.current_time())
        await trio.sleep(self.look_s)
        serve, served = models.serve, self.view.served
        if not isinstance(serve, bool):
            served = {name: each for name, each in served.items() if name in serve}
        return self.view._replace(served=served)

    def change(self, *models: StoreModel, **refused: str) -> None:
        faults = {name: RefusedModel(reason) for name, reason in refused.items()}
        self.view = StoreView({each.settings.name: each for each in models}, faults)

    @asynccontextmanager
    async def running(self):
        with trio.fail_after(10_000):
            async with trio.open_nursery() as nursery:
                await nursery.start(self.models.run, self.serving)
                yield self
                nursery.cancel_scope.cancel()

    async def ask(self, name: str | None, user: int = 1) -> str | None:
        """Do what a request does; return the reason if it is refused."""
        if (found := self.models.unopened(name)) is not None:
            try:
                await self.models.open(found, user)
            except BackendNotReadyError as error:
                return error.message
        return None


async def test_a_header_is_read_once_for_all_who_ask(autojump_clock):
    async with Home("a", "b").running() as home:
        assert (home.serving.reads, home.models.unread()) == ([], ["a", "b"])
        async with trio.open_nursery() as clients:
            for user in range(5):
                clients.start_soon(home.ask, "a", user)
        await home.ask("a")
        assert (home.serving.reads, home.models.unread()) == (["a"], ["b"])


async def test_those_who_wait_get_an_answer_if_the_first_to_ask_leaves(autojump_clock):
    async with Home("a").running() as home, trio.open_nursery() as clients:
        with trio.move_on_after(READ_S / 2):
            clients.start_soon(home.ask, "a", 2)
            await home.ask("a", 1)
        await trio.sleep(READ_S)
        assert home.serving.names == ["a"]


async def test_users_take_turns_and_few_headers_are_read_at_once(autojump_clock):
    names = [f"m{number}" for number in range(20)]
    async with Home(*names).running() as home, trio.open_nursery() as clients:
        for name in names[:-1]:
            clients.start_soon(home.ask, name, 1)
        await trio.sleep(READ_S / 2)
        began_at = trio.current_time()
        await home.ask(names[-1], 2)
        assert trio.current_time() - began_at <= READ_S
        assert home.serving.most_reading <= MAX_HEADER_READS


async def test_nobody_waits_for_all_that_another_user_has_named_before(autojump_clock):
    names = [f"m{number}" for number in range(20)]
    async with Home(*names).running() as home, trio.open_nursery() as clients:
        for name in names:
            clients.start_soon(home.ask, name, 1)
            await trio.testing.wait_all_tasks_blocked()
        began_at = trio.current_time()
        await home.ask(names[-1], 2)
        assert trio.current_time() - began_at <= READ_S
    assert sorted(home.serving.reads) == sorted(names)


async def test_headers_that_nobody_waits_for_any_more_are_not_read(autojump_clock):
    names = [f"m{number}" for number in range(20)]
    async with Home(*names).running() as home:
        with trio.move_on_after(READ_S / 2):
            async with trio.open_nursery() as clients:
                for name in names:
                    clients.start_soon(home.ask, name)
        await trio.sleep(100)
        assert len(home.serving.reads) <= MAX_HEADER_READS


async def test_the_store_is_looked_at_no_more_often_whatever_is_asked(autojump_clock):
    async with Home("a").running() as home:
        async with trio.open_nursery() as clients:
            for number in range(1000):
                clients.start_soon(home.ask, f"no{number}")
                await trio.sleep(STORE_LOOK_S / 100)
        took = trio.current_time() - home.looks[0]
        assert len(home.looks) <= took / STORE_LOOK_S + 1


async def test_what_is_served_is_not_kept_waiting_by_a_store_that_hangs(autojump_clock):
    async with Home("a", "b").running() as home:
        await home.ask("a")
        home.look_s = 1_000
        await trio.sleep(STORE_LOOK_S)
        for longest in (STORE_LOOK_S, 0, 0):
            began_at = trio.current_time()
            assert await home.ask("a") is None
            assert trio.current_time() - began_at <= longest
        await home.ask("b")
        assert trio.current_time() - home.looks[1] >= home.look_s
        assert home.serving.names == ["a", "b"]


async def test_a_model_that_is_loaded_waits_for_no_look_and_is_gone_after_it(
    autojump_clock,
):
    async with Home("a").running() as home:
        await home.ask("a")
        home.serving.engines["a"].become_ready()
        home.change()
        await trio.sleep(STORE_LOOK_S)
        for _ in range(3):
            began_at = trio.current_time()
            assert home.models.unopened("a") is None
            assert trio.current_time() == began_at
        await trio.sleep(2 * LOOK_S)
        assert home.serving.names == []
        assert len(home.looks) == 2


async def test_a_name_counts_as_soon_as_it_is_in_the_store(autojump_clock):
    async with Home().running() as home:
        assert await home.ask("a") is None
        home.change(model("a"))
        await home.ask("a")
        assert home.serving.names == ["a"]


async def test_a_removed_model_is_no_backend_any_more(autojump_clock):
    async with Home("a", "b").running() as home:
        await home.ask("a")
        home.change(model("b"))
        await trio.sleep(STORE_LOOK_S)
        await home.ask("a")
        assert home.serving.names == []
        assert home.models.unread() == ["b"]


async def test_a_model_is_replaced_if_its_files_are_others(autojump_clock):
    async with Home("a").running() as home:
        await home.ask("a")
        home.change(model("a", 2, blob=home.view.served["a"].settings.model))
        await trio.sleep(STORE_LOOK_S)
        await home.ask("a")
        assert home.serving.reads == ["a"]
        home.change(model("a", 3))
        await trio.sleep(STORE_LOOK_S)
        await home.ask("a")
        assert (home.serving.reads, home.serving.names) == (["a", "a"], ["a"])


async def test_a_broken_file_is_refused_until_its_manifest_changes(autojump_clock):
    async with Home("a").running() as home:
        fault = StartFailedError("/f: broken", reason="broken", is_broken_file=True)
        home.serving.faults["a"] = fault
        for _ in range(3):
            assert "broken" in (await home.ask("a") or "")
            await trio.sleep(10 * BREAKER_S)
        assert home.serving.reads == ["a"]
        home.serving.faults.clear()
        home.change(model("a", 2, blob=home.view.served["a"].settings.model))
        assert await home.ask("a") is None
        assert home.serving.names == ["a"]


async def test_what_failed_for_another_reason_is_tried_again_later(autojump_clock):
    async with Home("a").running() as home:
        home.serving.faults["a"] = StartFailedError("no memory just now")
        for _ in range(3):
            assert "no memory just now" in (await home.ask("a") or "")
        assert home.serving.reads == ["a"]
        home.serving.faults.clear()
        await trio.sleep(BREAKER_S)
        assert await home.ask("a") is None


async def test_an_error_that_nobody_expects_fails_one_model_and_not_the_daemon(
    autojump_clock,
):
    async with Home("a", "b").running() as home:
        home.serving.faults["a"] = ZeroDivisionError("a bug")
        for _ in range(2):
            assert "log" in (await home.ask("a") or "")
        assert home.serving.reads == ["a"]
        assert await home.ask("b") is None
        home.serving.faults.clear()
        await trio.sleep(BREAKER_S)
        assert await home.ask("a") is None


async def test_a_file_that_breaks_later_is_refused_from_then_on(autojump_clock):
    async with Home("a").running() as home:
        await home.ask("a")
        home.serving.on_broken["a"]("its SHA-256 is not the expected one")
        assert home.serving.names == []
        assert "SHA-256" in (await home.ask("a") or "")


async def test_a_file_that_breaks_late_does_not_end_what_has_replaced_it(
    autojump_clock,
):
    async with Home("a").running() as home:
        await home.ask("a")
        on_broken = home.serving.on_broken["a"]
        home.change(model("a", 2))
        await trio.sleep(STORE_LOOK_S)
        await home.ask("a")
        on_broken("its SHA-256 is not the expected one")
        assert await home.ask("a") is None
        assert home.serving.names == ["a"]


async def test_the_model_that_was_named_longest_ago_makes_room(autojump_clock):
    names = [f"m{number:02}" for number in range(MAX_OPENED_MODELS + 1)]
    async with Home(*names).running() as home:
        for name in names[:-1]:
            await home.ask(name)
        await home.ask(names[0])
        home.serving.busy.add(names[1])
        assert await home.ask(names[-1]) is None
        assert set(home.serving.names) == {*names} - {names[2]}
        home.serving.busy |= {*names}
        assert "in use already" in (await home.ask(names[2]) or "")
        home.serving.busy.clear()
        assert await home.ask(names[2]) is None


async def test_models_that_are_read_at_once_share_the_last_room(autojump_clock):
    names = [f"m{number:02}" for number in range(MAX_OPENED_MODELS + 1)]
    async with Home(*names).running() as home:
        for name in names[:-2]:
            await home.ask(name)
        home.serving.busy |= {*names}
        async with trio.open_nursery() as clients:
            for user, name in enumerate(names[-2:]):
                clients.start_soon(home.ask, name, user)
        assert len(home.serving.served) == MAX_OPENED_MODELS


async def test_a_manifest_that_cannot_be_used_is_refused_without_its_path(
    autojump_clock,
):
    async with Home("a").running() as home:
        home.change(model("a"), b="/store/manifests/b.json: torn")
        assert "inferd doctor" in (await home.ask("b") or "")
        assert "/store" not in (await home.ask("b") or "")


async def test_what_nobody_knows_for_a_look_that_failed_is_refused_as_that(
    autojump_clock,
):
    async with Home("a").running() as home:
        await home.ask("a")
        home.view = home.view._replace(failure="/store: Too many open files")
        with capture_logs() as logs:
            for name, reason in (("b", "cannot be looked at now"), ("a", "")) * 2:
                await trio.sleep(STORE_LOOK_S)
                refused = await home.ask(name) or ""
                assert (reason in refused, "/" in refused) == (True, False)
        assert home.serving.names == ["a"]
        assert [each["reason"] for each in logs] == [home.view.failure]
        home.change(model("a"), model("b"))
        assert await home.ask("b") is None
        assert home.serving.names == ["a", "b"]


async def test_a_change_whose_look_fails_brings_nothing_back_that_another_has_retired(
    autojump_clock,
):
    async with Home("a").running() as home, trio.open_nursery() as nursery:
        await home.ask("a")
        await trio.sleep(STORE_LOOK_S)
        home.look_s = 2 * LOOK_S
        nursery.start_soon(home.models.change, home.models.settings)
        await trio.testing.wait_all_tasks_blocked()
        home.look_s = LOOK_S
        home.change()
        assert await home.ask("b") is None
        home.view = StoreView({"a": model("a")}, failure="input/output error")
        await trio.sleep(2 * LOOK_S)
        assert (home.serving.names, home.models.unread()) == ([], [])


async def test_other_settings_are_refused_where_the_store_cannot_be_looked_at(
    autojump_clock,
):
    async with Home("a").running() as home:
        await home.ask("a")
        home.view = StoreView(failure="input/output error")
        new = ModelsSettings(serve=True, n_ctx=64)
        with pytest.raises(ConfigError, match="input/output error"):
            await home.models.check(new)
        assert await home.models.change(new) == ["models.serve: input/output error"]
        assert home.serving.names == ["a"]
        home.change(model("b"))
        assert await home.models.change(new) == []
        assert home.models.unread() == ["b"]


async def test_models_that_are_named_are_read_before_the_start(autojump_clock):
    async with Home("a", serve=["a"]).running() as home:
        assert home.serving.names == ["a"]
        assert home.told == [("a", "checking_local")]
        assert home.models.unopened("b") is None  # and the store is not looked at


async def test_the_start_does_not_wait_for_another_look_however_long_one_takes(
    autojump_clock,
):
    home = Home("a", serve=["a"])
    home.look_s = 10 * STORE_LOOK_S
    async with home.running():
        assert home.serving.names == ["a"]
        assert len(home.looks) == 1


async def test_a_start_fails_for_a_named_model_that_cannot_be_read(autojump_clock):
    home = Home("a", serve=["a"])
    home.serving.faults["a"] = StartFailedError("/f: broken", reason="broken")
    with pytest.RaisesGroup(
        pytest.RaisesExc(StartFailedError, match=r"models\.serve: a: /f: broken"),
        flatten_subgroups=True,
    ):
        async with home.running():
            pass
    missing = Home(serve=["b"])
    missing.view = StoreView(refused={"b": RefusedModel("no b", is_missing=True)})
    with pytest.RaisesGroup(
        pytest.RaisesExc(ConfigError, match="no b"), flatten_subgroups=True
    ):
        async with missing.running():
            pass


async def test_other_settings_are_served_once_they_are_checked(autojump_clock):
    async with Home("a", "b", serve=["a"]).running() as home:
        new = ModelsSettings(serve=("b", "c"))
        home.view = StoreView(refused={"c": RefusedModel("no c", is_missing=True)})
        with pytest.raises(ConfigError, match=r"models\.serve: c: no c"):
            await home.models.check(new)
        assert home.serving.names == ["a"]
        home.change(model("b"))
        new = msgspec.structs.replace(new, serve=("b",))
        await home.models.check(new)
        assert await home.models.change(new) == []
        assert home.serving.names == ["b"]
        home.models.close_idle()
        assert home.serving.names == []


async def test_a_change_serves_what_is_there_when_it_is_made(autojump_clock):
    async with Home("a", "b").running() as home:
        new = ModelsSettings(serve=("a", "b"))
        await home.models.check(new)
        home.change(model("a", 2))
        home.view = home.view._replace(refused={"b": RefusedModel("no b")})
        [fault] = await home.models.change(new)
        assert "models.serve: b: no b" in fault
        [served] = home.models.view.served.values()
        assert served == model("a", 2)


async def test_nothing_is_looked_at_where_nothing_is_served(autojump_clock):
    async with Home("a", serve=False).running() as home:
        assert await home.ask("a") is None
        assert (home.looks, home.models.view) == ([], NOTHING_SERVED)


async def test_names_of_backends_stand_before_those_of_the_store(autojump_clock):
    async with Home("a", "b", backends=["a"]).running() as home:
        assert home.models.unopened("a") is None
        assert home.models.unread() == ["b"]


@pytest.mark.parametrize("aliases", [{"a": ()}, {"chat": ("a",)}])
async def test_a_name_that_is_configured_later_is_no_model_of_the_store(
    autojump_clock, aliases
):
    async with Home("a", "b").running() as home:
        await home.ask("a")
        await home.ask("b")
        home.names.replace(aliases)
        home.models.close_configured()
        assert home.serving.names == ["b"]


async def test_a_name_that_is_configured_while_its_header_is_read_stays_configured(
    autojump_clock,
):
    async with Home("a").running() as home, trio.open_nursery() as clients:
        clients.start_soon(home.ask, "a")
        await trio.sleep(READ_S / 2)
        home.names.replace({"a": ()})
        home.models.close_configured()
        await trio.sleep(READ_S)
        assert home.serving.names == []
    assert home.serving.reads == ["a"]


async def test_a_bug_in_a_look_leaves_the_models_as_they_were(autojump_clock):
    home = Home("a")
    async with home.running():
        await home.ask("a")
        home.look_s = math.nan  # which no sleep can handle
        with capture_logs() as logs:
            await home.ask("b")
        home.look_s = LOOK_S
        home.change(model("a"), model("c"))
        await trio.sleep(STORE_LOOK_S)
        assert await home.ask("c") is None
        assert home.serving.names == ["a", "c"]
    assert "models.crashed" in [each["event"] for each in logs]
