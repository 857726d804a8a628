import io
import json

import pytest

from tests.fakes.listener import answers, failure, listening, read_line, says


def frame(*results):
    return {
        "type": "rerank",
        "id": "cli",
        "results": [{"index": index, "score": score} for index, score in results],
        "model": "m",
        "usage": {"input_tokens": 1},
        "backend": "b",
    }


@pytest.fixture
def rerank(inferd, short_dir, monkeypatch):
    """Rank lines of stdin, or arguments, where a daemon follows a dialogue."""

    def run(*arguments, stdin=b"", dialogue):
        monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(stdin)))
        with listening(short_dir / "infer.rerank.sock", dialogue):
            return inferd("rerank", "--directory", short_dir, *arguments)

    return run


def test_documents_are_printed_best_first(rerank):
    code, stdout, stderr = rerank(
        "query", "a", "b", dialogue=answers([frame((1, 2.5), (0, -1))])
    )
    assert (code, stderr) == (0, "")
    assert stdout.splitlines() == [
        '{"index":1,"score":2.5,"text":"b"}',
        '{"index":0,"score":-1.0,"text":"a"}',
    ]


def test_objects_come_back_with_their_fields(rerank):
    stdin = b'"a"\n{"id":7,"score":"old","text":"b"}\n'
    dialogue = answers([frame((1, 3), (0, 1))])
    _, stdout, _ = rerank("query", "-", stdin=stdin, dialogue=dialogue)
    assert [json.loads(line) for line in stdout.splitlines()] == [
        {"index": 1, "score": 3.0, "id": 7, "text": "b"},
        {"index": 0, "score": 1.0, "text": "a"},
    ]


def test_query_documents_and_options_reach_the_request(rerank):
    asked: list[dict[str, object]] = []

    def listen(sock):
        asked.append(json.loads(read_line(sock)))
        says(frame((0, 1)) | {"id": "mine"})(sock)

    options = ("--top-n", "1", "--id", "mine", "--model", "m")
    assert rerank("q", *options, "a", "b", dialogue=listen).code == 0
    [request] = asked
    assert (request["query"], request["documents"]) == ("q", ["a", "b"])
    assert (request["top_n"], request["id"], request["model"]) == (1, "mine", "m")


def test_as_many_documents_as_may_be_are_ranked(rerank):
    stdin = b'"a"\n' * 256
    assert rerank("q", stdin=stdin, dialogue=answers([frame((0, 1))])).code == 0


def test_more_documents_are_refused_and_not_read(inferd, monkeypatch):
    stdin = io.BytesIO(b'"a"\n' * 257 + b"nonsense\n")
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(stdin))
    assert inferd("rerank", "q") == (
        2,
        "",
        "error: more than 256 documents; 256 can be ranked at once\n",
    )
    assert stdin.readline() == b"nonsense\n"


def test_a_document_that_is_refused_is_named_by_its_line(rerank):
    refusal = failure("invalid_request", "documents[1] must not be empty", "cli")
    code, _, stderr = rerank("q", stdin=b'"a"\n""\n', dialogue=answers([refusal]))
    assert code == 2
    assert stderr == "error: invalid_request: line 2 must not be empty\n"


@pytest.mark.parametrize("index", [-1, 1])
def test_a_daemon_that_ranks_what_is_not_there_is_an_error(rerank, index):
    code, stdout, stderr = rerank("q", "a", dialogue=answers([frame((index, 1))]))
    assert (code, stdout) == (2, "")
    assert stderr == f"error: the daemon ranked document {index}: there is none\n"


def test_a_line_without_a_text_is_an_error(inferd, monkeypatch):
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(b'"a"\n1\n')))
    code, stdout, stderr = inferd("rerank", "q")
    assert (code, stdout) == (2, "")
    assert stderr.startswith("error: line 2: neither a string nor an object")


@pytest.mark.parametrize(
    "words", [("rerank", "q", "--top-n"), ("embed", "--dimensions")]
)
def test_a_number_that_no_request_can_carry_is_refused(inferd, capfd, words):
    with pytest.raises(SystemExit) as caught:
        inferd(*words, "-1", "a")
    assert caught.value.code == 2
    told = f"argument {words[-1]}: -1 not in [0, 4294967295]"
    assert told in capfd.readouterr().err


def test_a_model_that_is_not_there_is_told_with_where_names_are(rerank):
    refusal = failure("model_not_found", 'model "x" is not served here; …', "cli")
    code, _, stderr = rerank("q", "a", "--model", "x", dialogue=answers([refusal]))
    assert (code, stderr.split("\n")) == (
        2,
        [
            'error: model_not_found: model "x" is not served here; …',
            "",
            "hint: inferd model list",
            "",
        ],
    )
