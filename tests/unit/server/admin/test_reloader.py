import pytest
import trio
import trio.testing
from structlog.testing import capture_logs

from inferd.config.settings import ConfigError
from inferd.server.admin.reload import ReloadError, ReloadResult
from inferd.server.admin.reloader import Reloader

LOAD_S = 100.0


class Home:
    """A reloader whose reloads take a while, and the service manager."""

    def __init__(self) -> None:
        self.told: list[str] = []
        self.n_begun = self.n_extending = 0
        self.faults: list[Exception] = []
        self.reloader = Reloader(self._reload, self)
        self.outcomes: list[object] = []

    async def _reload(self) -> ReloadResult:
        self.n_begun += 1
        number = self.n_begun
        await trio.sleep(LOAD_S)
        if self.faults:
            raise self.faults.pop(0)
        return ReloadResult([str(number)], [])

    def reloading(self) -> None:
        self.told.append("reloading")

    async def extend_timeout(self) -> None:
        self.n_extending += 1
        try:
            await trio.sleep_forever()
        finally:
            self.n_extending -= 1

    def ready(self) -> None:
        self.told.append("ready")

    async def ask(self) -> None:
        try:
            result = await self.reloader.reload()
        except ReloadError as error:
            self.outcomes.append(str(error))
        else:
            self.outcomes.append(result.applied)


async def settled() -> None:
    await trio.testing.wait_all_tasks_blocked()


async def test_a_client_that_leaves_cancels_nothing(autojump_clock, nursery):
    home = Home()
    nursery.start_soon(home.reloader.run)
    with trio.move_on_after(LOAD_S / 2) as left:
        await home.ask()
    assert left.cancelled_caught
    nursery.start_soon(home.ask)
    await settled()
    assert (home.n_begun, home.told, home.n_extending) == (1, ["reloading"], 1)
    await trio.sleep(LOAD_S * 2)
    assert (home.n_begun, home.outcomes, home.n_extending) == (2, [["2"]], 0)
    assert home.told == ["reloading", "ready"] * 2


async def test_orders_during_a_reload_are_one_more_however_many(
    autojump_clock, nursery
):
    home = Home()
    nursery.start_soon(home.reloader.run)
    nursery.start_soon(home.ask)
    await settled()
    for _ in range(1000):
        home.reloader.order()
    for _ in range(3):
        nursery.start_soon(home.ask)
    await trio.sleep(10 * LOAD_S)
    assert home.outcomes == [["1"], ["2"], ["2"], ["2"]]
    assert home.n_begun == 2


async def test_a_fault_is_told_and_logged_and_the_next_reload_works(
    autojump_clock, nursery
):
    home = Home()
    home.faults = [ZeroDivisionError("by zero"), ConfigError("limits.idle_s = -1")]
    nursery.start_soon(home.reloader.run)
    with capture_logs() as log:
        for _ in range(3):
            await home.ask()
    crashed, refused, result = home.outcomes
    assert "ZeroDivisionError: by zero" in str(crashed)
    assert (refused, result) == ("limits.idle_s = -1", ["3"])
    events = [(each["event"], each["log_level"]) for each in log]
    assert events == [("reload.crashed", "error"), ("config.refused", "warning")]
    assert home.told == ["reloading", "ready"] * 3


async def test_the_end_of_the_daemon_is_told_to_all_who_wait(autojump_clock):
    home = Home()
    async with trio.open_nursery() as clients:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(home.reloader.run)
            clients.start_soon(home.ask)
            await settled()
            clients.start_soon(home.ask)
            await settled()
            home.reloader.close()
            clients.start_soon(home.ask)
            await settled()
            assert len(home.outcomes) == 2  # one is under way and may still end
            nursery.cancel_scope.cancel()
        await home.reloader.wait_told()
        assert len(home.outcomes) == 3
    assert all("draining" in str(each) for each in home.outcomes)
    assert (home.n_begun, home.told) == (1, ["reloading"])
    home.reloader.order()
    with pytest.raises(ReloadError, match="draining"):
        await home.reloader.reload()
