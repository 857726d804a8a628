import tomllib

import pytest
from hypothesis import given, strategies as st

from inferd.config.faults import MAX_FAULTS, examine_config
from inferd.config.parse import parse_config
from inferd.config.settings import ConfigError
from inferd.config.toml_text import toml_value


def faults(text: str) -> list[str]:
    examined = examine_config(text)
    assert (examined.config is None) == bool(examined.faults)
    return examined.faults


def test_a_sound_configuration_is_what_parsing_gives():
    text = "[admission]\nmax_active = 2\n[[backend]]\nkind = 'mock'\nname = 'm'\n"
    assert faults(text) == []
    assert examine_config(text).config == parse_config(text)


def test_every_fault_is_told_with_key_value_and_what_is_allowed():
    found = faults(
        "nonsense = 1\n"
        "[limits]\ndrain_s = 'x'\nidle_s = 0\n"
        "[[backend]]\nkind = 'none'\nname = 'a'\nunknown = 1\n"
        "[[backend]]\nkind = 'llamacpp'\nmodel = 7\n"
        "[[backend]]\nkind = 'mock'\nname = 'a'\ndie_by = 'SIGFOO'\n"
        "[access]\ninfer = {uids = [0, -1]}\n"
        "[[users.ranges]]\nfirst = 5\n"
    )
    told = [
        "nonsense",
        "limits.drain_s = 'x'",
        "limits.idle_s = 0",
        "backend[0].kind = 'none'",
        "backend[1].model = 7",
        "backend[1] = {'kind': 'llamacpp', 'model': 7}",
        "backend[2].die_by = 'SIGFOO'",
        "access.infer.uids[1] = -1",
        "users.ranges[0] = {'first': 5}",
        "backend[2].name = 'a'",
    ]
    assert [fault[: len(start)] for fault, start in zip(found, told, strict=True)] == (
        told
    )
    assert (
        "expected one of anthropic, gemini, inferd, llamacpp, mock, ollama, openai, "
        "whisper-server, whispercpp" in found[3]
    )
    assert found[-1].endswith("each backend needs its own name")


def test_contradictions_are_all_told():
    table = "[[backend]]\nkind = 'llamacpp'\nname = '{}'\nspeculation = 'draft'\n"
    assert [fault[:10] for fault in faults(table.format("a") + table.format("b"))] == [
        "backend[0]",
        "backend[1]",
    ]


def test_what_is_not_toml_is_one_fault():
    [fault] = faults("[limits\n")
    assert fault.startswith("not TOML: ")


def test_only_so_many_faults_are_told():
    text = "".join(f"wrong{n} = 1\n" for n in range(2 * MAX_FAULTS))
    assert len(faults(text)) == MAX_FAULTS


def test_a_fault_of_the_whole_document_ends_the_search():
    assert len(faults("backend = 3\n[limits]\nno = 1\n")) == 2


TABLES = ("listen", "access", "users", "admission", "memory", "limits", "log")
VALUES = st.recursive(
    st.one_of(
        st.integers(-3, 2**40),
        st.booleans(),
        st.floats(-10, 10),
        st.sampled_from(["", "a", "mock", "llamacpp", "SIGKILL", "x\x00"]),
    ),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3),
        st.dictionaries(st.sampled_from(["first", "count", "uids", "no"]), inner),
    ),
    max_leaves=4,
)
KEYS = st.sampled_from(
    [
        "name",
        "kind",
        "model",
        "tokens",
        "die_by",
        "drain_s",
        "level",
        "ranges",
        "no",
        "max_active",
        "budget",
        "infer",
        "directory",
        "speculation",
        "vision",
    ]
)
TABLE = st.dictionaries(KEYS, VALUES, max_size=4)
DOCUMENTS = st.fixed_dictionaries(
    {},
    optional={
        **{name: st.one_of(TABLE, VALUES) for name in TABLES},
        "backend": st.one_of(st.lists(TABLE, max_size=3), VALUES),
        "other": VALUES,
    },
)


@pytest.mark.slow
@given(document=DOCUMENTS)
def test_a_fault_is_found_where_and_only_where_parsing_refuses(document):
    text = "".join(f"{key} = {toml_value(value)}\n" for key, value in document.items())
    assert tomllib.loads(text) == document
    found = faults(text)
    refusal, config = [], None
    try:
        config = parse_config(text)
    except ConfigError as error:
        refusal = [str(error)]
    assert found[:1] == refusal
    assert examine_config(text).config == config
    assert all("\n" not in fault for fault in found)
