import msgspec
from hypothesis import given, strategies as st

from inferd.config.bridge import BridgeSettings
from inferd.config.kinds.llamacpp import LlamaCppSettings
from inferd.config.kinds.mock import MockSettings
from inferd.config.settings import (
    AccessRule,
    AccessSettings,
    AdmissionSettings,
    Config,
    LimitSettings,
    ListenSettings,
    LogSettings,
    MemorySettings,
    UserSettings,
)
from inferd.server.admin.reload import (
    RELOADABLE_ADMISSION,
    RELOADABLE_LIMITS,
    compare_configs,
    merge_config,
)
from tests.cases import each_case

MOCK = MockSettings(name="a")
BASE = Config(backend=(LlamaCppSettings(name="chat"),))


def changed(running: Config, **tables) -> tuple[Config, list[str], list[str]]:
    new = msgspec.structs.replace(running, **tables)
    merged = merge_config(running, new, running.backend)
    return merged, *compare_configs(running, merged, new)


def test_the_same_again_changes_nothing():
    assert changed(BASE) == (BASE, [], [])


def test_settings_of_the_bridge_are_not_the_daemons():
    bridge = BridgeSettings(listen="127.0.0.1:1")
    assert changed(BASE, bridge=bridge) == (BASE, [], [])


def test_the_log_goes_on_where_it_began_at_another_level():
    log = LogSettings(level="error", file=False, generations=9)
    merged, applied, waiting = changed(BASE, log=log)
    assert merged == msgspec.structs.replace(BASE, log=LogSettings(level="error"))
    assert (applied, waiting) == (["log.level"], ["log.file", "log.generations"])


def test_settings_that_can_change_are_applied():
    access = AccessSettings(infer=AccessRule(uids=(5,)))
    users = UserSettings(subuid_file="/elsewhere")
    limits = LimitSettings(drain_s=3, max_connections=9)
    admission = AdmissionSettings(max_queued=7)
    merged, applied, waiting = changed(
        BASE, access=access, users=users, limits=limits, admission=admission
    )
    assert merged == msgspec.structs.replace(
        BASE, access=access, users=users, limits=limits, admission=admission
    )
    assert applied == [
        "access.infer",
        "users.subuid_file",
        "admission.max_queued",
        "limits.drain_s",
        "limits.max_connections",
    ]
    assert waiting == []


@each_case(
    ("tables", "waiting"),
    [
        (
            {"listen": ListenSettings(directory="/x", v2=False)},
            ["listen.directory", "listen.v2"],
        ),
        ({"admission": AdmissionSettings(max_active=3)}, ["admission.max_active"]),
        ({"access": AccessSettings(admin=AccessRule())}, ["access.admin"]),
        ({"memory": MemorySettings(budget=3)}, ["memory.budget"]),
        ({"limits": LimitSettings(breaker_deaths=9)}, ["limits.breaker_deaths"]),
        ({"backend": (MOCK,)}, ["backend chat: removed", "backend a: added"]),
        (
            {"backend": (MOCK, LlamaCppSettings(name="chat", n_ctx=9))},
            ["backend a: added", "backend chat: n_ctx"],
        ),
        ({"backend": (MockSettings(name="chat"),)}, ["backend chat: kind"]),
        (
            {"backend": (LlamaCppSettings(name="chat", n_ctx=9),)},
            ["backend chat: n_ctx"],
        ),
    ],
)
def test_settings_that_need_a_restart_are_named_and_not_applied(tables, waiting):
    assert changed(BASE, **tables) == (BASE, [], waiting)


def test_another_order_of_backends_is_named():
    running = Config(backend=(MOCK, MockSettings(name="b")))
    *_, waiting = changed(running, backend=running.backend[::-1])
    assert waiting == ["backend: order"]


def test_settings_that_need_a_restart_are_named_at_every_reload():
    merged, *_ = changed(BASE, memory=MemorySettings(budget=3))
    assert changed(merged, memory=MemorySettings(budget=3))[2] == ["memory.budget"]


def test_every_key_that_takes_effect_is_one():
    assert set(RELOADABLE_ADMISSION) <= set(AdmissionSettings.__struct_fields__)
    assert set(RELOADABLE_LIMITS) <= set(LimitSettings.__struct_fields__)


@given(
    keys=st.sets(st.sampled_from(LimitSettings.__struct_fields__)),
)
def test_each_change_is_named_once(keys):
    limits = LimitSettings(**dict.fromkeys(keys, 12_345))
    merged, applied, waiting = changed(BASE, limits=limits)
    assert sorted(applied + waiting) == sorted(f"limits.{key}" for key in keys)
    assert {each.rpartition(".")[2] for each in applied} == keys & set(
        RELOADABLE_LIMITS
    )
    assert merge_config(merged, merged, merged.backend) == merged


def test_aliases_are_applied_also_beside_what_needs_a_restart():
    new = LlamaCppSettings(name="chat", aliases=("fast",), n_ctx=9)
    merged, applied, waiting = changed(BASE, backend=(new,))
    assert merged.backend == (LlamaCppSettings(name="chat", aliases=("fast",)),)
    assert (applied, waiting) == (
        ["backend chat: aliases"],
        ["backend chat: n_ctx"],
    )


def test_a_backend_that_the_new_file_lacks_has_no_aliases_until_the_restart():
    running = Config(
        backend=(MockSettings(name="a", aliases=("x",)), MockSettings(name="b"))
    )
    new = (MockSettings(name="b", aliases=("x",)),)
    merged, applied, waiting = changed(running, backend=new)
    assert [each.aliases for each in merged.backend] == [(), ("x",)]
    assert applied == ["backend a: aliases", "backend b: aliases"]
    assert waiting == ["backend a: removed"]
