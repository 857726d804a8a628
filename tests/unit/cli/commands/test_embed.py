import io
import itertools
import json
import os

import pytest
from hypothesis import given, settings, strategies as st

from inferd.cli.commands.embed import batches
from inferd.cli.console import CommandError
from inferd.cli.json_lines import InputText
from tests.fakes.listener import answers, failure, listening, read_line, says


def frame(*embeddings):
    return {
        "type": "embeddings",
        "id": "cli",
        "embeddings": list(embeddings),
        "dimensions": 1,
        "model": "m",
        "usage": {"input_tokens": 1},
        "backend": "b",
    }


@pytest.fixture
def embed(inferd, short_dir, monkeypatch):
    """Embed lines of stdin, or arguments, where a daemon follows a dialogue."""

    def run(*arguments, stdin=b"", dialogue):
        monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(stdin)))
        with listening(short_dir / "infer.embed.sock", dialogue):
            return inferd("embed", "--directory", short_dir, *arguments)

    return run


def lines_of(stdout):
    return [json.loads(line) for line in stdout.splitlines()]


# --- batches ----------------------------------------------------------------------------


def text(content):
    return InputText(content, "", {})


def breaking(n_texts):
    """Texts that break off."""
    yield from [text("a")] * n_texts
    raise CommandError("not JSON")


@settings(max_examples=50)
@given(st.integers(0, 20), st.integers(1, 8))
def test_batches_are_full_but_the_last_and_nothing_is_lost(n_texts, n_batch):
    texts = [text(str(number)) for number in range(n_texts)]
    cut = list(batches(texts, n_batch))
    assert list(itertools.chain(*cut)) == texts
    assert [len(batch) for batch in cut[:-1]] == [n_batch] * (len(cut) - 1)
    assert all(0 < len(batch) <= n_batch for batch in cut)


def test_long_texts_make_small_batches(monkeypatch):
    monkeypatch.setattr("inferd.cli.commands.embed.BATCH_CHARS", 10)
    cut = list(batches(map(text, ["long", *["text"] * 5, "a" * 99, "end"]), 64))
    assert [len(batch) for batch in cut] == [3, 3, 1, 1]


@pytest.mark.parametrize(("n_texts", "sizes"), [(0, []), (2, [2]), (5, [2, 2, 1])])
def test_samples_before_an_error_are_yielded(n_texts, sizes):
    given_sizes: list[int] = []
    with pytest.raises(CommandError, match="not JSON"):
        given_sizes.extend(len(batch) for batch in batches(breaking(n_texts), 2))
    assert given_sizes == sizes


def test_a_batch_is_yielded_before_more_is_read():
    def endless():
        for number in itertools.count():
            assert number < 2, "too much is read"
            yield text("a")

    assert len(next(batches(endless(), 2))) == 2


# --- the command ------------------------------------------------------------------------


def test_texts_come_back_with_their_embeddings_in_order(embed):
    outcome = embed("a", "b", dialogue=answers([frame([1.5], [-2])]))
    assert outcome == (
        0,
        '{"text":"a","embedding":[1.5]}\n{"text":"b","embedding":[-2.0]}\n',
        "",
    )


def test_objects_come_back_with_their_fields(embed):
    stdin = b'{"id":7,"text":"a","embedding":"old"}\n"b"\n'
    code, stdout, _ = embed(stdin=stdin, dialogue=answers([frame([1], [2])]))
    assert code == 0
    assert lines_of(stdout) == [
        {"id": 7, "text": "a", "embedding": [1.0]},
        {"text": "b", "embedding": [2.0]},
    ]


def test_every_option_reaches_the_request_and_every_batch_is_one(embed):
    asked: list[dict[str, object]] = []

    def listen(sock):
        for embeddings in ([[1], [2]], [[3]]):
            asked.append(json.loads(read_line(sock)))
            says(frame(*embeddings) | {"id": "mine"})(sock)

    options = ["--dimensions", "4", "--task", "similarity", "--batch", "2"]
    options += ["--id", "mine", "--model", "e5"]
    code, stdout, _ = embed(*options, stdin=b'"a"\n"b"\n"c"', dialogue=listen)
    assert (code, len(lines_of(stdout))) == (0, 3)
    assert [each["input"] for each in asked] == [["a", "b"], ["c"]]
    names = ("id", "dimensions", "task", "model")
    others = {tuple(each[name] for name in names) for each in asked}
    assert others == {("mine", 4, "similarity", "e5")}


def test_texts_may_stand_among_options(embed):
    dialogue = answers([frame([1], [2])])
    assert embed("a", "--batch", "9", "b", dialogue=dialogue).code == 0
    assert embed("--batch", "9", "--", "-a", "-b", dialogue=dialogue).code == 0


def test_a_batch_is_printed_before_the_next_is_read(inferd, short_dir, monkeypatch):
    reading, writing = os.pipe()

    def listen(sock):
        read_line(sock)
        says(frame([1]))(sock)
        os.close(writing)  # only now do the lines come to their end

    os.write(writing, b'"a"\n')
    with os.fdopen(reading) as stdin:
        monkeypatch.setattr("sys.stdin", stdin)
        with listening(short_dir / "infer.embed.sock", listen):
            outcome = inferd("embed", "--batch", "1", "--directory", short_dir)
    assert outcome == (0, '{"text":"a","embedding":[1.0]}\n', "")


def test_what_stands_before_a_line_that_is_none_is_embedded(embed):
    outcome = embed(stdin=b'"a"\nnonsense\n"c"\n', dialogue=answers([frame([1])]))
    assert (outcome.code, lines_of(outcome.stdout)) == (
        2,
        [{"text": "a", "embedding": [1.0]}],
    )
    assert outcome.stderr.startswith("error: line 2: not JSON: ")


def test_a_text_that_is_refused_is_named_by_its_line(embed):
    refusal = failure("invalid_request", "input[0] must not be empty", "cli")
    dialogue = answers([frame([1])], [refusal])
    code, stdout, stderr = embed("--batch", "1", stdin=b'"a"\n""\n', dialogue=dialogue)
    assert (code, len(lines_of(stdout))) == (2, 1)
    assert stderr == "error: invalid_request: line 2 must not be empty\n"


def test_a_daemon_that_gives_too_few_is_an_error(embed):
    code, stdout, stderr = embed("a", "b", dialogue=answers([frame([1])]))
    assert (code, stdout) == (2, "")
    assert stderr == "error: the daemon gave 1 embeddings for 2 texts\n"


def test_no_lines_need_no_daemon(inferd, short_dir, monkeypatch):
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO()))
    assert inferd("embed", "--directory", short_dir) == (0, "", "")


@pytest.mark.parametrize("size", ["0", "2049", "-1", "many"])
def test_a_batch_of_no_size_is_refused(inferd, size):
    with pytest.raises(SystemExit) as caught:
        inferd("embed", "a", f"--batch={size}")
    assert caught.value.code == 2
