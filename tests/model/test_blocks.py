from collections.abc import Iterator

import pytest

from tests.daemon.ended import ended_record
from tests.daemon.fixtures import daemons
from tests.daemon.harness import Connection, DaemonProcess, Frame, llamacpp
from tests.model.tiny import SPECIALS, write_tiny_model

pytestmark = [pytest.mark.model, pytest.mark.slow]

N_VOCAB = len(SPECIALS) + 256 + 95


@pytest.fixture(scope="module")
def daemon(tmp_path_factory) -> Iterator[DaemonProcess]:
    """A daemon with a model that recommends to take the likeliest token."""
    path = tmp_path_factory.mktemp("tiny") / "careful.gguf"
    write_tiny_model(path, recommended={"temp": 0.0})
    with daemons() as make:
        yield make({"backend": [llamacpp(path)]}).start()


def ask(daemon: DaemonProcess, text="hello", **fields) -> list[Frame]:
    message = {"role": "user", "content": [{"type": "text", "text": text}]}
    with Connection(daemon.directory / "infer.v2.sock") as connection:
        return connection.ask({"messages": [message], **fields})


def text_of(frames: list[Frame]) -> str:
    return "".join(each["block"]["delta"] for each in frames if each["type"] == "frame")


def test_what_the_model_recommends_counts_on_v2_alone(daemon):
    greedy = text_of(ask(daemon, max_tokens=20, temperature=0))
    assert {text_of(ask(daemon, max_tokens=20)) for _ in range(3)} == {greedy}
    assert text_of(ask(daemon, max_tokens=20, temperature=1, seed=1)) != greedy
    v1 = [daemon.ask(max_tokens=20, seed=seed)[-1]["content"] for seed in range(3)]
    assert len({*v1, greedy}) == 4


def test_each_token_has_its_log_probability(daemon):
    *frames, done = ask(daemon, max_tokens=12, logprobs=3)
    told = [each for frame in frames for each in frame["logprobs"]]
    assert len(told) == 12 == done["usage"]["output_tokens"]
    assert b"".join(bytes(each["bytes"]) for each in told).decode() == text_of(frames)
    for each in told:
        best = each.pop("top_logprobs")
        assert len(best) == 3
        assert best[0] == each


def send(daemon: DaemonProcess, **request) -> list[Frame]:
    with Connection(daemon.directory / "infer.v2.sock") as connection:
        return connection.ask(request)


def ids_of(frames: list[Frame]) -> list[int]:
    return [token for frame in frames for token in frame.get("token_ids", [])]


def test_the_ids_of_an_answer_continue_a_prompt_of_tokens(daemon):
    prompt = [len(SPECIALS) + each for each in b"hello" * 9]
    whole = send(daemon, input_tokens=prompt, max_tokens=12, token_ids=True)
    ids = ids_of(whole)
    assert len(ids) == 12 == whole[-1]["usage"]["output_tokens"]
    assert whole[-1]["usage"]["input_tokens"] == len(prompt)
    tokens = [*prompt, *ids[:6]]
    rest = send(daemon, id="rest", input_tokens=tokens, max_tokens=6, token_ids=True)
    assert ids_of(rest) == ids[6:]
    assert text_of(whole).endswith(text_of(rest))
    assert rest[-1]["usage"]["cached_tokens"] == len(prompt) + 6 - 1
    record = ended_record(daemon, "rest")
    assert record["cached_tokens"] == len(prompt) + 6 - 1
    assert (record["input_tokens"], record["output_tokens"]) == (len(tokens), 6)


def test_tokens_pass_a_daemon_in_front_as_they_are(daemon, make_daemon):
    far = {"name": "far", "kind": "inferd", "model": "chat", "route_unnamed": True}
    address = {"base_url": f"sockets:{daemon.directory}", "token_ids": True}
    front = make_daemon({"backend": [{**far, **address}]}).start()
    asked = {"max_tokens": 12, "token_ids": True, "seed": 3}
    text = {"type": "text", "text": "hello"}
    message = {"role": "user", "content": [text]}
    for prompt in ({"input_tokens": [7, 8, 9]}, {"messages": [message]}):
        asking = {**asked, **prompt}
        near, there = send(daemon, **asking), send(front, **asking)
        assert len(ids_of(there)) == 12
        assert ids_of(there) == ids_of(near)
        assert there[-1]["usage"]["input_tokens"] == near[-1]["usage"]["input_tokens"]


def test_a_large_line_of_tokens_is_counted_and_a_form_is_held_to(daemon):
    fields = {"max_tokens": 4, "padding": "x" * 32 * 1024}
    form = {"type": "regex", "pattern": "[ab]{3}"}
    *_, done = send(daemon, input_tokens=[7, 8, 9], response_format=form, **fields)
    assert (done["usage"]["input_tokens"], done["structure_complete"]) == (3, True)
    [refused] = send(daemon, input_tokens=[7] * 9999, **fields)
    assert (refused["code"], refused["prompt_tokens"]) == ("invalid_request", 9999)


def test_tokens_that_the_model_has_not_are_refused(daemon):
    [refused] = send(daemon, input_tokens=[0, N_VOCAB, N_VOCAB + 1])
    assert refused["message"] == (
        f"invalid request: input_tokens[1] {N_VOCAB} not in [0, {N_VOCAB - 1}], "
        "the model's vocabulary"
    )


def test_a_token_that_ends_the_answer_is_told_apart(daemon):
    first = ids_of(ask(daemon, max_tokens=12, token_ids=True))[0]
    *_, done = ask(daemon, max_tokens=12, stop_token_ids=[first], token_ids=True)
    assert (done["end_token_id"], "token_ids" in done) == (first, False)


def test_a_stop_token_ends_the_answer_and_is_told(daemon):
    told = ask(daemon, max_tokens=12, logprobs=1)[:-1]
    stop = told[0]["logprobs"][0]["id"]
    done = ask(daemon, max_tokens=12, stop_token_ids=[stop])[-1]
    assert (done["stop_reason"], done["stop_token_id"]) == ("stop_sequence", stop)
    assert done["usage"]["output_tokens"] == 0


def test_a_bias_reaches_the_model(daemon):
    letter = N_VOCAB - 1
    biased = ask(daemon, max_tokens=5, logit_bias={str(letter): 100})
    assert text_of(biased) == "~~~~~"


def test_a_penalty_reaches_the_model(daemon):
    text = text_of(ask(daemon, max_tokens=40, presence_penalty=2))
    assert len(set(text)) == len(text) == 40


def test_a_prompt_can_be_read_and_nothing_else_be_done(daemon):
    *frames, done = ask(daemon, "x" * 300, prefill_only=True, progress=True, id="p")
    n_tokens = done["usage"]["input_tokens"]
    assert frames[-1] == {
        "type": "status",
        "id": "p",
        "status": "prefill",
        "processed": n_tokens,
        "total": n_tokens,
    }
    assert {frame["type"] for frame in frames} == {"status"}
    assert (done["stop_reason"], done["usage"]["output_tokens"]) == ("end_turn", 0)


@pytest.mark.parametrize(
    ("field", "value", "message"),
    [
        ("logit_bias", {str(N_VOCAB): 1}, f"logit_bias token {N_VOCAB}"),
        ("stop_token_ids", [0, N_VOCAB], f"stop_token_ids {N_VOCAB}"),
    ],
)
def test_a_token_that_the_model_does_not_have_is_refused(daemon, field, value, message):
    [refusal] = ask(daemon, id="x", **{field: value})
    assert (refusal["id"], refusal["code"]) == ("x", "invalid_request")
    assert f"{message} not in [0, {N_VOCAB - 1}]" in refusal["message"]
