import string
from typing import Literal, get_args, get_origin, get_type_hints

import msgspec
import pytest
from hypothesis import given, settings, strategies as st

from inferd.config.kinds.llamacpp import LlamaCppSettings
from inferd.config.kinds.mock import MockSettings
from inferd.config.kinds.registry import KINDS
from inferd.config.kinds.remote import RemoteSettings
from inferd.config.parse import parse_config
from inferd.config.settings import (
    AccessRule,
    AccessSettings,
    Config,
    ConfigError,
    LimitSettings,
    MemorySettings,
)
from inferd.limits.models import MODEL_NAME_MAX_CHARS
from inferd.limits.residency import MAX_OPENED_MODELS
from inferd.limits.server import MAX_ALIASES
from tests.cases import each_case

MOCK = '[[backend]]\nkind = "mock"\nname = "m"\n'
LLAMA = '[[backend]]\nkind = "llamacpp"\nname = "c"\n'
REMOTE = 'name = "o"\nmodel = "m"\nbase_url = "unix:/a"\n'
MOCK_KEYS = (
    "aliases, audio, die_after_tokens, die_at_load, die_by, keep_alive_s, kind, load, "
    "load_delay_ms, memory_mb, name, prepare_delay_ms, token_delay_ms, tokens, transcribe, vision"
)
ADMISSION_KEYS = (
    "gateway_weight, max_active, max_live, max_queued, max_queued_bytes, "
    "max_queued_tokens, quantum_s"
)
_SERVED_WITHOUT_QUEUE = (
    "admission.max_queued = 0: models.serve needs 1 at least, as its models are loaded on "
    "demand, which has requests wait"
)
_DEMAND_WITHOUT_QUEUE = (
    "admission.max_queued = 0: backend c needs 1 at least, as its load = 'demand' has "
    "requests wait"
)
LLAMA_KEYS = ", ".join(sorted([*LlamaCppSettings.__struct_fields__, "kind"]))


def complaint(text: str) -> str:
    with pytest.raises(ConfigError) as caught:
        parse_config(text)
    return str(caught.value)


def test_no_text_is_all_defaults():
    default = LlamaCppSettings(name="chat", model="embedded:chat")
    assert parse_config("") == Config(backend=(default,))


def test_every_table_is_read():
    config = parse_config(
        "[listen]\ndirectory = '/run/inferd'\ngroup = 'llm'\nv2 = false\n"
        "[admission]\nmax_active = 2\nmax_queued = 0\n"
        "[access]\ninfer = {uids = [5, 'anna'], gids = ['llm']}\nadmin = {}\n"
        "[memory]\nbudget = 1000000\nreserve = 0\n"
        "[limits]\ndrain_s = 1\nbreaker_open_s = 0.5\n"
        f"{MOCK}tokens = ['a', 'b']\ndie_by = 'SIGSTOP'\n"
        f"{LLAMA}model = '/m.gguf'\nn_gpu_layers = -1\n"
        "serves = 'rerank'\nembed_pooling = 4\n"
        "chat_template = 'qwen3-coder'\ncache_type_v = 'q8_0'\n"
    )
    assert (config.listen.directory, config.listen.group) == ("/run/inferd", "llm")
    assert (config.listen.v2, config.listen.embed) == (False, True)
    assert (config.admission.max_active, config.admission.max_queued) == (2, 0)
    assert config.access == AccessSettings(
        infer=AccessRule(uids=(5, "anna"), gids=("llm",)), admin=AccessRule()
    )
    assert config.memory == MemorySettings(budget=1_000_000, reserve=0)
    assert config.limits == LimitSettings(drain_s=1.0, breaker_open_s=0.5)
    assert config.backend == (
        MockSettings(name="m", tokens=("a", "b"), die_by="SIGSTOP"),
        LlamaCppSettings(
            name="c",
            model="/m.gguf",
            n_gpu_layers=-1,
            serves="rerank",
            embed_pooling=4,
            chat_template="qwen3-coder",
            cache_type_v="q8_0",
        ),
    )


@each_case(
    ("text", "line"),
    [
        (
            "oops = 1",
            (
                "oops: no such key; allowed: access, admission, backend, bridge, "
                "bridge_helper, chats, limits, listen, log, memory, models, users"
            ),
        ),
        (
            "[listen]\ntcp = true",
            "listen.tcp: no such key; allowed: directory, embed, group, rerank, v2",
        ),
        (
            "[admission]\nfair = true",
            f"admission.fair: no such key; allowed: {ADMISSION_KEYS}",
        ),
        (
            "[access]\ninfer = {users = []}",
            "access.infer.users: no such key; allowed: gids, uids",
        ),
        (
            "[users]\nranges = [{first = 1, count = 2, size = 3}]",
            "users.ranges[0].size: no such key; allowed: block, count, first, owner",
        ),
        (f"{MOCK}n_ctx = 8", f"backend[0].n_ctx: no such key; allowed: {MOCK_KEYS}"),
        (
            f"{MOCK}{LLAMA}tokens = []",
            f"backend[1].tokens: no such key; allowed: {LLAMA_KEYS}",
        ),
    ],
)
def test_an_unknown_key_is_refused_with_the_allowed_ones(text, line):
    assert complaint(text) == line


WORDS = [
    (table, field, get_args(literal), settings)
    for settings, table in [
        *((kind, name) for name, kind in get_type_hints(Config).items()),
        *((kind.settings, "backend") for kind in KINDS.kinds),
    ]
    if hasattr(settings, "__struct_fields__")
    for field, hint in get_type_hints(settings).items()
    for literal in (hint, *get_args(hint))
    if get_origin(literal) is Literal
]
"""Every setting that is one of a few words: its table, its name, the words, and whose it is."""
LISTS = ("allow", "samplers")
"""Those that are lists of such words."""


def test_the_settings_of_a_few_words_are_found():
    assert {(table, field) for table, field, _, _ in WORDS} >= {
        ("log", "level"),
        ("backend", "serves"),
        ("backend", "cache_type_v"),
        ("backend", "chat_template"),
        ("backend", "speculation"),
    }


@each_case(("table", "field", "words", "settings"), WORDS)
def test_a_word_that_is_not_allowed_is_refused_with_those_that_are(
    table, field, words, settings
):
    where = f"{table}.{field}"
    text = f"[{table}]\n{field} = 'loud'"
    if table == "backend":
        where = f"backend[1].{field}"
        text = f"{MOCK}{LLAMA}{field} = 'loud'"
        if issubclass(settings, RemoteSettings):
            kind = f'[[backend]]\nkind = "{settings.__struct_config__.tag}"\n'
            text = f"{MOCK}{kind}{REMOTE}{field} = 'loud'"
    if field in LISTS:
        where, text = f"{where}[0]", text.replace("'loud'", "['loud']")
    allowed = ", ".join(sorted(words))
    assert complaint(text) == f"{where} = 'loud': expected one of {allowed}"


def test_every_limit_is_named_when_one_is_misspelt():
    known = ", ".join(sorted(LimitSettings.__struct_fields__))
    assert complaint("[limits]\ndrain = 1") == (
        f"limits.drain: no such key; allowed: {known}"
    )


@each_case(
    ("text", "line"),
    [
        ("listen = 1", "listen = 1: expected `object`, got `int`"),
        ("[listen]\nv2 = 'yes'", "listen.v2 = 'yes': expected `bool`, got `str`"),
        (
            "[listen]\ndirectory = 2026-01-01",
            (
                "listen.directory = datetime.date(2026, 1, 1): "
                "expected `str`, got `date`"
            ),
        ),
        (
            "[admission]\nmax_queued = 1.0",
            "admission.max_queued = 1.0: expected `int`, got `float`",
        ),
        (
            "[admission]\nmax_queued = true",
            "admission.max_queued = True: expected `int`, got `bool`",
        ),
        ("[backend]\n", "backend = {}: expected `array`, got `object`"),
        (
            f"{MOCK}tokens = ['a', 5]",
            "backend[0].tokens[1] = 5: expected `str`, got `int`",
        ),
        (
            "[[backend]]\nkind = 'mock'",
            "backend[0] = {'kind': 'mock'}: object missing required field `name`",
        ),
        (
            "[[backend]]\nname = 'm'",
            "backend[0] = {'name': 'm'}: object missing required field `kind`",
        ),
    ],
)
def test_a_wrong_type_is_refused_with_key_and_value(text, line):
    assert complaint(text) == line


@each_case(
    ("text", "line"),
    [
        (
            "[admission]\nmax_active = 0",
            "admission.max_active = 0: expected `int` >= 1",
        ),
        (
            "[admission]\nmax_queued = -1",
            "admission.max_queued = -1: expected `int` >= 0",
        ),
        ("[limits]\ndrain_s = 0", "limits.drain_s = 0: expected `float` > 0.0"),
        ("[limits]\ndrain_s = nan", "limits.drain_s = nan: expected `float` > 0.0"),
        (
            "[limits]\ndrain_s = 86401",
            "limits.drain_s = 86401: expected `float` <= 86400.0",
        ),
        (
            "[limits]\ndrain_s = inf",
            "limits.drain_s = inf: expected `float` <= 86400.0",
        ),
        (f"{LLAMA}n_ctx = 7", "backend[0].n_ctx = 7: expected `int` >= 8"),
        (
            f"{LLAMA}n_gpu_layers = -2",
            "backend[0].n_gpu_layers = -2: expected `int` >= -1",
        ),
        (
            f"{LLAMA}embed_pooling = 0",
            "backend[0].embed_pooling = 0: expected `int` >= 1",
        ),
        (
            f"{LLAMA}embed_pooling = 5",
            "backend[0].embed_pooling = 5: expected `int` <= 4",
        ),
        (f"{LLAMA}model = ''", "backend[0].model = '': expected `str` of length >= 1"),
        ("backend = []", "backend = []: expected `array` of length >= 1"),
        (
            "[[backend]]\nname = 'm'\nkind = 'vllm'",
            (
                "backend[0].kind = 'vllm': expected one of anthropic, gemini, inferd, llamacpp, mock, "
                "ollama, openai, whisper-server, whispercpp"
            ),
        ),
        (
            f"{LLAMA}cache_type_k = 'q4_0'",
            "backend[0].cache_type_k = 'q4_0': expected one of f16, q8_0",
        ),
        (
            f"{LLAMA}serves = 'talk'",
            "backend[0].serves = 'talk': expected one of embed, generate, rerank",
        ),
        (
            "[log]\nlevel = 'loud'",
            "log.level = 'loud': expected one of debug, error, info, warning",
        ),
        ("[memory]\nbudget = -1", "memory.budget = -1: expected `int` >= 0"),
        (MOCK + MOCK, "backend[1].name = 'm': each backend needs its own name"),
        (
            f"{MOCK}aliases = ['m']",
            "backend[0].aliases = 'm': this is already the name of backend m",
        ),
        (
            f"{MOCK}aliases = ['c']\n{LLAMA}",
            "backend[0].aliases = 'c': this is already the name of backend c",
        ),
        (
            f"{MOCK}aliases = ['x']\n{LLAMA}aliases = ['y', 'x']",
            "backend[1].aliases = 'x': this is already an alias of backend m",
        ),
        (
            f"{MOCK}aliases = ['x', 'x']",
            "backend[0].aliases = 'x': this is already an alias of backend m",
        ),
        (
            "[models]\nserve = 'all'",
            "models.serve = 'all': expected `bool | array`, got `str`",
        ),
        (
            "[models]\nserve = ['a', 'b', 'a']",
            "models.serve[2] = 'a': it is listed already",
        ),
        ("[models]\nn_ctx = 0", "models.n_ctx = 0: expected `int` >= 8"),
        (
            f"{LLAMA}speculation = 'guess'",
            "backend[0].speculation = 'guess': expected one of draft, lookup, off",
        ),
        (
            f"{LLAMA}speculation = 'draft'",
            "backend[0].speculation = 'draft': needs draft_model, the path of a GGUF file",
        ),
        (
            f"{LLAMA}speculation = 'lookup'\ndraft_model = 'small.gguf'",
            "backend[0].draft_model = 'small.gguf': needs speculation = 'draft'",
        ),
        (
            f"{LLAMA}mmproj_sha256 = '{'0' * 64}'",
            f"backend[0].mmproj_sha256 = '{'0' * 64}': needs mmproj",
        ),
        (
            f"{LLAMA}require_accelerator = true",
            "backend[0].require_accelerator = 'true': needs n_gpu_layers other than 0",
        ),
        (
            f"{LLAMA}main_gpu = 1\ntensor_split = [1, 2.5]",
            "backend[0].tensor_split = [1.0, 2.5]: needs no main_gpu",
        ),
        (
            f"{LLAMA}tensor_split = [0, 0]",
            "backend[0].tensor_split = [0.0, 0.0]: needs a number above 0 in it",
        ),
        (f"{LLAMA}main_gpu = 16", "backend[0].main_gpu = 16: expected `int` <= 15"),
        (
            f"{LLAMA}model = 'auto'",
            "backend[0].model = 'auto': needs ladder, the models to choose from",
        ),
        (
            f"{LLAMA}ladder = ['a.gguf']",
            "backend[0].ladder = ('a.gguf',): needs model = 'auto'",
        ),
        (
            f"{LLAMA}model = 'auto'\nladder = ['a.gguf']\nsha256 = '{'0' * 64}'",
            f"backend[0].sha256 = '{'0' * 64}': needs a model that is not 'auto'",
        ),
        (
            f"{LLAMA}model = 'auto'\nladder = ['a.gguf']\nmodel_parts = ['b.gguf']",
            "backend[0].model_parts = ['b.gguf']: needs a model that is not 'auto'",
        ),
        (
            f"{LLAMA}sha256 = []",
            "backend[0].sha256 = []: expected `array` of length >= 1",
        ),
        (
            f"{LLAMA}model = 'auto'\nladder = ['a.gguf']\nmmproj = 'p.gguf'",
            "backend[0].mmproj = 'p.gguf': needs a model that is not 'auto'",
        ),
        (
            f"[admission]\nmax_queued = 0\n{LLAMA}load = 'demand'",
            _DEMAND_WITHOUT_QUEUE,
        ),
        (
            "[admission]\nmax_queued = 0\n[models]\nserve = ['a']",
            _SERVED_WITHOUT_QUEUE,
        ),
        (f"{LLAMA}draft_max = 0", "backend[0].draft_max = 0: expected `int` >= 1"),
        (f"{LLAMA}draft_max = 8", "backend[0].draft_max = 8: expected `int` <= 7"),
    ],
)
def test_a_value_out_of_range_is_refused_with_what_is_allowed(text, line):
    assert complaint(text) == line


@each_case(
    ("key", "value"),
    [
        *(("name", ""), ("name", "a b"), ("name", ".hidden"), ("name", "a@b")),
        *(("name", "chat\n"), ("sha256", "0" * 63), ("sha256", "A" * 64)),
        ("sha256", "0" * 64 + "\n"),
    ],
)
def test_a_text_of_another_form_is_refused_with_that_form(key, value):
    text = f"kind = 'llamacpp'\nname = 'c'\n{key} = {quoted(value)}"
    if key == "name":
        text = text.replace("name = 'c'\n", "")
    line = complaint(f"[[backend]]\n{text}")
    assert line.startswith(f"backend[0].{key} = {value!r}: expected `str")
    assert "matching regex" in line


@each_case("signal", ["SIGHUP", "KILL", "SIGKILL\n", "sigkill", ""])
def test_a_signal_that_the_mock_cannot_die_by_is_refused(signal):
    line = complaint(f"{MOCK}die_by = {quoted(signal)}")
    assert line.startswith(f"backend[0].die_by = {signal!r}: expected `str` matching")
    assert "KILL|SEGV|ABRT|TERM|STOP" in line


def quoted(text: str) -> str:
    """Write a TOML string."""
    return msgspec.json.encode(text).decode()


@each_case("name", ["a", "Chat-1.5_b", "0", "_lorem", "x" * 64])
def test_a_name_may_have_letters_digits_and_a_few_marks(name):
    text = f"[[backend]]\nkind = 'mock'\nname = '{name}'"
    assert parse_config(text).backend == (MockSettings(name=name),)


@each_case(
    "text",
    [
        *("[", "a = ", "a = 1\na = 2", "= 1", "\x00", "a = '\n'", "a = 01", "[a]\n[a]"),
        *("a = " + "1" * 5000, "a = " + "[" * 2000, "a." * 2000 + "b = 1"),
        "[listen]\ndirectory" + ".a" * 2000 + " = 1",
        "[listen]\ndirectory = 0x" + "f" * 5000,
        '"a\\nb" = 1',
    ],
    ids=lambda text: ascii(text[:20]),
    shards=2,
)
def test_what_cannot_be_read_is_refused_in_one_line(text):
    assert complaint(text).splitlines() == [complaint(text)]


@each_case(
    "text",
    [
        f"[admission]\nmax_active = {2**64}",
        f"{LLAMA}n_ctx = {2**32 + 8}",
        f"{LLAMA}n_threads = {2**32}",
        f"{LLAMA}n_gpu_layers = {2**32}",
    ],
)
def test_a_number_that_native_code_cannot_take_is_refused(text):
    assert f".{text.splitlines()[-1]}: " in complaint(text)


# --- any text -------------------------------------------------------------------------

KEYS = [
    *("listen", "admission", "limits", "backend", "kind", "name", "model", "tokens"),
    *("directory", "max_active", "drain_s", "die_by", "sha256", "x", '""', '"a b"'),
]
VALUES = st.recursive(
    st.sampled_from(
        [
            *("1", "0", "-1", "0.5", "nan", "-inf", "true", "1e999", "0xff", "1_0"),
            *('"mock"', '"llamacpp"', '"m"', "'''\n'''", '"\\u0000"', "[]", "{}"),
            *("2026-01-01", "07:32:00", "2026-01-01T07:32:00Z", "9" * 30),
        ]
    ),
    lambda values: st.one_of(
        st.lists(values, max_size=2).map(lambda each: f"[{', '.join(each)}]"),
        st.tuples(st.sampled_from(KEYS), values).map(
            lambda each: f"{{{each[0]} = {each[1]}}}"
        ),
    ),
    max_leaves=4,
)
LINES = st.one_of(
    st.sampled_from(["[listen]", "[admission]", "[limits]", "[[backend]]"]),
    st.tuples(st.sampled_from(KEYS), VALUES).map(" = ".join),
    st.text(string.printable, max_size=8),
)


@settings(max_examples=100)
@given(st.text() | st.lists(LINES, max_size=6).map("\n".join))
def test_any_text_is_a_configuration_or_one_line(text):
    outcome: Config | ConfigError
    try:
        outcome = parse_config(text)
    except ConfigError as error:
        outcome = error
    assert isinstance(outcome, Config) or len(str(outcome).splitlines()) == 1


@each_case("alias", ["gpt-4o", "qwen/qwen2.5:7b-q4_k_m", "A.b@1+2", "x" * 128])
def test_an_alias_may_be_what_models_are_called_elsewhere(alias):
    [backend] = parse_config(f"{MOCK}aliases = ['{alias}']").backend
    assert backend.aliases == (alias,)


@each_case("alias", ["", "x" * 129, "-x", "a b", "a\\u0000", "ü"])
def test_an_alias_that_nobody_can_type_is_refused(alias):
    assert complaint(f'{MOCK}aliases = ["{alias}"]').startswith("backend[0].aliases[0]")


def test_a_backend_has_a_bounded_number_of_aliases():
    aliases = [f"a{number}" for number in range(MAX_ALIASES + 1)]
    assert complaint(f"{MOCK}aliases = {aliases}").startswith("backend[0].aliases = ")
    [backend] = parse_config(f"{MOCK}aliases = {aliases[1:]}").backend
    assert len(backend.aliases) == MAX_ALIASES


def test_the_default_backend_makes_way_for_models_of_the_store():
    default = parse_config("").backend
    for serve, backends in (
        ("true", ()),
        ("['a']", ()),
        ("false", default),
        ("[]", default),
    ):
        assert parse_config(f"[models]\nserve = {serve}").backend == backends
    [mock] = parse_config(f"{MOCK}[models]\nserve = true").backend
    assert mock.name == "m"
    assert (
        parse_config(f"{MOCK}[models]\nserve = true").served
        == "m, all models of the store"
    )
    assert parse_config("[models]\nserve = ['a/b:c', 'd']").served == "a/b:c, d"


def test_names_of_the_store_that_cannot_be_served_are_refused():
    no_name = complaint("[models]\nserve = ['a', 'a b']")
    assert no_name.startswith("models.serve[1]: 'a b': a model's name is ")
    many = [f"m{number}" for number in range(MAX_OPENED_MODELS + 1)]
    too_many = complaint(f"[models]\nserve = {many}")
    assert too_many.startswith("models.serve = ['m0', 'm1', ")
    assert too_many.endswith(f"expected `array` of length <= {MAX_OPENED_MODELS}")


def test_names_of_backends_are_as_long_as_those_of_the_store():
    text = "[[backend]]\nkind = 'mock'\nname = '{}'"
    assert parse_config(text.format("team/x:q4")).backend[0].name == "team/x:q4"
    assert parse_config(text.format("x" * MODEL_NAME_MAX_CHARS)).backend
    assert "expected `str` matching" in complaint(
        text.format("x" * (MODEL_NAME_MAX_CHARS + 1))
    )
