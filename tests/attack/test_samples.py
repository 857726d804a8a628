"""What is sent is what each attack says: bounded, and of the size that it says."""

import json
from functools import cache

import pytest

from attack.grammars import gbnf, lark, patterns
from attack.kinds.models import HEADERS, patched
from attack.kinds.structures import conversations
from attack.lines import large_lines
from attack.schemas import schemas, small, tools
from inferd.limits.protocol import GRAMMAR_MAX_BYTES, MAX_FRAME_BYTES
from inferd.wire import codec
from tests.model.tiny import write_tiny_model

DECODERS = {
    "infer.sock": codec.decode_generate,
    "infer.v2.sock": codec.decode_blocks,
}


@cache
def questions():
    made = [gbnf, lark, patterns, schemas, tools, conversations]
    return [question for make in made for question in make()]


@pytest.mark.long
@pytest.mark.slow
def test_every_request_can_be_read_so_that_what_it_holds_is_worked_on():
    for question in questions():
        assert question.line.endswith(b"\n")
        assert len(question.line) <= MAX_FRAME_BYTES
        DECODERS[question.leaf](question.line[:-1])


def test_grammars_and_schemas_are_not_refused_for_their_size_alone():
    for question in (*gbnf(), *lark(), *patterns()):
        request = json.loads(question.line)
        form = request.get("response_format", {})
        text = request.get("grammar") or form.get("grammar") or form.get("pattern")
        assert len(text.encode()) <= GRAMMAR_MAX_BYTES, question.name
    for name, schema in small().items():
        data = json.dumps(schema, separators=(",", ":"), ensure_ascii=False)
        assert len(data.encode()) <= GRAMMAR_MAX_BYTES, name


@pytest.mark.slow
def test_names_are_told_apart():
    names = [question.name for question in questions()]
    assert len({*names}) == len(names)


@pytest.mark.parametrize(
    "question", [*large_lines(100_000)], ids=lambda each: each.name
)
def test_a_large_line_has_the_size_that_was_asked_for(question):
    assert 50_000 <= len(question.line) <= 110_000
    assert question.line.count(b"\n") == 1


@pytest.mark.parametrize(("key", "value"), HEADERS)
def test_a_header_gets_another_number_and_nothing_else_changes(tmp_path, key, value):
    data = write_tiny_model(tmp_path / "tiny.gguf").read_bytes()
    changed = patched(data, key, value)
    assert len(changed) == len(data)
    assert sum(a != b for a, b in zip(data, changed, strict=True)) <= 4
    assert value.to_bytes(4, "little") in changed


def test_a_number_that_is_not_there_cannot_be_changed():
    with pytest.raises(ValueError, match="not found"):
        patched(b"GGUF", "no.such.key", 1)
