import datetime as dt
import subprocess
import sys

import pytest
import trio

from inferd.backend.job import GenerateJob, Sampling, Turn
from inferd.config.kinds.mock import MockSettings
from inferd.config.settings import LimitSettings
from inferd.dialects.prompt import template
from inferd.dialects.prompt.template import ChatTemplate, TemplateError
from inferd.engine.engine import Engine
from inferd.errors import BackendUnavailableError
from inferd.limits.engine import PREPARE_TIMEOUT_S
from inferd.limits.worker import TEMPLATE_MEMORY_BYTES
from inferd.server.telemetry.status import StatusBoard
from inferd.worker.process_memory import GrowthLimit
from tests.fakes.memory_coordinator import unlimited_coordinator
from tests.fakes.source import imports, modules
from tests.fakes.starting import start_of
from tests.fakes.worker import Workers

RENDERERS = tuple(
    f"inferd.dialects.prompt.{name}"
    for name in ("jinja_sandbox", "template", "renderer", "template_caps")
)
TURNS = [Turn("user", "hello")]
JOB = GenerateJob(
    turns=TURNS,
    max_tokens=10,
    sampling=Sampling(temperature=0, top_p=1, top_k=0, seed=0),
)


def render(source: str) -> str:
    return ChatTemplate(source, {}, lambda: dt.datetime.now(dt.UTC)).render(TURNS)


@pytest.mark.parametrize(
    "source",
    [
        "{{ ''.__class__.__mro__[1].__subclasses__() }}",
        "{{ messages.__class__ }}{{ messages.__class__.__base__.__subclasses__() }}",
        "{{ raise_exception.__globals__['json'] }}",
        "{{ strftime_now.__closure__[0].cell_contents }}",
        "{{ cycler.__init__.__globals__.os.popen('id').read() }}",
        "{{ lipsum.__globals__['os'].system('id') }}",
        "{{ '{0.__class__.__init__.__globals__}'.format(messages) }}",
        "{% set _ = messages.append('more') %}",
        "{% set _ = messages[0].update({'role': 'system'}) %}",
        "{% set _ = messages.clear() %}",
        "{% set _ = dict.update(messages[0], {'role': 'system'}) %}",
        "{% include '/etc/passwd' %}",
        "{% import 'os' as os %}",
        "{{ range(999999999) | list | length }}",
    ],
)
def test_a_template_cannot_get_out_of_its_sandbox(source):
    with pytest.raises(TemplateError):
        assert render(source) is None


def test_what_a_template_writes_is_bounded(monkeypatch):
    monkeypatch.setattr(template, "TEMPLATE_OUTPUT_CHARS", 1000)
    with pytest.raises(TemplateError, match="over 1000 characters"):
        render(
            "{% for a in range(9999) %}{% for b in range(9999) %}x{% endfor %}{% endfor %}"
        )


GROWS = "{% set n = namespace(s=[1, 'a']) %}{% for _ in range(60) %}{% set n.s = "


# What the collector calls, hypothesis' clock, may be what gets no memory.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize(
    "source",
    [
        *(
            "{{ 'a' | center(10**11) }}",
            "{{ (1).to_bytes(10**11) }}",
        ),
        *("{{ '%099999999999d' % 1 }}", "{{ '{:>99999999999}'.format(1) }}"),
        *(
            "{{ [1] | batch(10**11, 'x') | list }}",
            "{{ {'a': 1} | tojson(indent=10**11) }}",
        ),
        *(GROWS + "n.s + n.s %}{% endfor %}", GROWS + "n.s ~ n.s %}{% endfor %}"),
    ],
)
def test_what_a_template_takes_of_memory_is_bounded(source):
    with GrowthLimit(32 * 1024 * 1024), pytest.raises(TemplateError, match="Memory"):
        render(source)


RENDERED_ALONE = """
import sys
from inferd.backend.job import Turn
from inferd.dialects.prompt.template import ChatTemplate, TemplateError
from inferd.worker.process_memory import GrowthLimit
with GrowthLimit(32 * 1024 * 1024):
    try:
        ChatTemplate(sys.argv[1], {}, lambda: None).render([Turn("user", "hello")])
    except TemplateError as error:
        print(error)
"""


@pytest.mark.slow
def test_so_is_what_it_takes_in_small_pieces():
    """In a process of its own: here, what other tests have freed would do for long."""
    source = GROWS.replace("60", "9000") + "n.s + [range(99999) | list] %}{% endfor %}"
    told = subprocess.check_output([sys.executable, "-c", RENDERED_ALONE, source])
    assert b"MemoryError" in told


HUGE = "{% set n = (1).from_bytes(('f' * 65536).encode(), 'big') %}"


@pytest.mark.parametrize(
    "source",
    [
        *("{{ 10 ** (10 ** 9) }}", "{{ 2 ** 9999999999 }}", "{{ (-3) ** 9999999999 }}"),
        "{% set n = 10 ** 10 %}{{ n ** n }}",
        GROWS.replace("[1, 'a']", "3") + "n.s * n.s %}{% endfor %}",
        *(HUGE + "{{ n // 3 }}", HUGE + "{{ 3 % n }}", HUGE + "{{ n * n }}"),
        *(HUGE + "{{ n is divisibleby 3 }}", HUGE + "{{ n | round }}"),
        *("{{ 1 | round(-9999999999) }}", "{{ 1.5 | round(9999999999, 'ceil') }}"),
        *("{{ 'a' * 10**9 }}", "{{ 10**9 * 'a' }}", "{{ [1] * 10**9 }}"),
    ],
)
def test_what_a_template_computes_with_is_bounded(source):
    with GrowthLimit(TEMPLATE_MEMORY_BYTES), pytest.raises(TemplateError):
        render(source)


async def test_a_template_that_never_ends_costs_the_worker_alone(
    monkeypatch, autojump_clock
):
    workers = Workers()
    monkeypatch.setattr("inferd.engine.engine.start_worker", workers.start)
    limits = LimitSettings()
    engine = Engine(
        start_of(MockSettings(name="chat"), n_slots=1, limits=limits),
        limits=limits,
        coordinator=unlimited_coordinator("chat"),
        observer=StatusBoard(),
    )
    async with trio.open_nursery() as nursery:
        nursery.start_soon(engine.run, lambda: None)
        worker = await workers.next_ready()
        with pytest.raises(BackendUnavailableError, match="too long"):
            async with engine.prepare(JOB):
                pytest.fail("it was prepared")
        assert trio.current_time() == PREPARE_TIMEOUT_S
        assert worker.was_killed
        await workers.next_ready()
        nursery.cancel_scope.cancel()


def test_templates_are_rendered_by_the_worker_alone():
    dialects = {
        f"{name.removeprefix('inferd.').replace('.', '/')}.py" for name in RENDERERS
    }
    importers = {
        module
        for module, tree in modules("jinja2|inferd.dialects.prompt")
        if any(name.split(".")[0] == "jinja2" for name in imports(tree))
        or any(name.startswith(RENDERERS) for name in imports(tree))
    }
    assert importers >= dialects
    assert {module.split("/")[0] for module in importers - dialects} == {"worker"}
