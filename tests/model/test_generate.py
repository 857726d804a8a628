import pytest

from tests.daemon.harness import (
    DaemonProcess,
    Frame,
    MakeDaemon,
    content_of,
    generate,
    llamacpp,
)
from tests.model.tiny import N_CTX

pytestmark = [pytest.mark.model, pytest.mark.slow]

YES_OR_NO = 'root ::= "yes" | "no"'


def untimed(frame: Frame) -> Frame:
    """Leave out what is another each time."""
    return {name: value for name, value in frame.items() if name != "timing"}


def greedy(daemon, text="hello", **fields):
    frames = daemon.ask(text, temperature=0, seed=0, **fields)
    return [untimed(frame) for frame in frames]


def test_an_answer_streams_a_token_at_a_time_and_adds_up(tiny_daemon: DaemonProcess):
    *tokens, done = greedy(tiny_daemon, id="a", max_tokens=20)
    assert {(frame["type"], frame["id"]) for frame in tokens} == {("token", "a")}
    assert len(tokens) == 20
    assert done["content"] == content_of(tokens)
    assert done["usage"]["completion_tokens"] == 20
    assert done["stop_reason"] == "length"
    assert done["backend"] == "chat"


def test_the_prompt_is_what_the_template_writes_and_is_counted(
    tiny_daemon: DaemonProcess,
):
    rendered = "<|im_start|>user\nhello<|im_end|>\n<|im_start|>assistant\n"
    markers = ("<|im_start|>", "<|im_end|>", "<|im_start|>")
    n_characters = len(rendered) - sum(map(len, markers))
    begin = 1
    done = greedy(tiny_daemon, "hello", max_tokens=1)[-1]
    assert done["usage"]["prompt_tokens"] == begin + len(markers) + n_characters


def test_a_greedy_answer_is_the_same_each_time_and_another_to_another_prompt(
    tiny_daemon: DaemonProcess,
):
    first, second, other = (
        greedy(tiny_daemon, prompt, max_tokens=40)[-1]["content"]
        for prompt in ("hello", "hello", "hellp")
    )
    assert first == second != other


def test_a_sampled_answer_is_another_each_time(tiny_daemon: DaemonProcess):
    first, second = (tiny_daemon.ask(max_tokens=40)[-1] for _ in range(2))
    assert first["content"] != second["content"]
    assert first["seed"] != second["seed"]


def test_the_seed_that_is_told_gives_the_same_answer_again(tiny_daemon: DaemonProcess):
    told = tiny_daemon.ask(max_tokens=40)[-1]
    again = tiny_daemon.ask(max_tokens=40, seed=told["seed"])[-1]
    assert untimed(again) == untimed(told)


def test_without_streaming_the_text_is_the_same(tiny_daemon: DaemonProcess):
    streamed = greedy(tiny_daemon, max_tokens=20)[-1]
    [whole] = greedy(tiny_daemon, max_tokens=20, stream=False)
    assert whole == streamed


@pytest.mark.parametrize("max_tokens", [0, 1])
def test_the_shortest_answers_have_as_many_tokens_as_they_may(
    tiny_daemon: DaemonProcess, max_tokens
):
    *tokens, done = greedy(tiny_daemon, max_tokens=max_tokens)
    assert len(tokens) == max_tokens
    assert done["usage"]["completion_tokens"] == max_tokens
    assert done["stop_reason"] == "length"


def test_an_answer_may_run_to_the_end_of_the_context(tiny_daemon: DaemonProcess):
    usage = greedy(tiny_daemon, max_tokens=10 * N_CTX)[-1]["usage"]
    assert usage["prompt_tokens"] + usage["completion_tokens"] == N_CTX


def test_a_prompt_that_leaves_room_for_one_token_is_the_longest(
    tiny_daemon: DaemonProcess,
):
    overhead = greedy(tiny_daemon, "", max_tokens=0)[-1]["usage"]["prompt_tokens"]
    longest = "x" * (N_CTX - overhead - 1)
    done = greedy(tiny_daemon, longest)[-1]
    assert done["usage"]["prompt_tokens"] == N_CTX - 1
    assert done["usage"]["completion_tokens"] == 1
    [refusal] = greedy(tiny_daemon, longest + "x", id="over")
    assert (refusal["id"], refusal["code"]) == ("over", "invalid_request")
    assert refusal["prompt_tokens"] == N_CTX
    assert refusal["n_ctx"] == N_CTX
    assert refusal["tokens_over"] == 1


def test_a_prompt_that_is_far_too_long_is_refused_with_the_least_that_it_may_be(
    tiny_daemon: DaemonProcess,
):
    [refusal] = greedy(tiny_daemon, "x" * 300_000, id="far")
    assert (refusal["id"], refusal["code"]) == ("far", "invalid_request")
    assert refusal["at_least"] is True
    assert 1.9 * N_CTX < refusal["prompt_tokens"] < 300_000
    assert refusal["tokens_over"] == refusal["prompt_tokens"] + 1 - N_CTX


def test_two_answers_at_once_are_each_what_they_are_alone(tiny_daemon: DaemonProcess):
    alone = [greedy(tiny_daemon, text, max_tokens=300)[-1] for text in ("one", "two")]
    with tiny_daemon.connect() as one, tiny_daemon.connect() as two:
        one.send(generate("one", temperature=0, seed=0, max_tokens=300))
        two.send(generate("two", temperature=0, seed=0, max_tokens=300))
        assert [untimed(each.frames()[-1]) for each in (one, two)] == alone


def test_a_prompt_in_many_chunks_beside_a_stream_is_answered_as_alone(
    tiny_daemon: DaemonProcess,
):
    long = "tell me more " * 30
    alone = greedy(tiny_daemon, long, max_tokens=20)[-1]
    with tiny_daemon.connect() as stream:
        stream.send(generate(temperature=0, max_tokens=N_CTX))
        stream.frame()
        assert greedy(tiny_daemon, long, max_tokens=20)[-1] == alone


@pytest.mark.parametrize("temperature", [0, 1])
def test_an_answer_follows_its_grammar(tiny_daemon: DaemonProcess, temperature):
    done = tiny_daemon.ask(grammar=YES_OR_NO, temperature=temperature)[-1]
    assert done["content"] in ("yes", "no")
    assert done["stop_reason"] == "end"


@pytest.mark.parametrize(
    "grammar", ["root ::= (", 'root ::= root "x"', 'branch ::= "x"', "root ::= twig"]
)
def test_a_grammar_that_cannot_be_followed_is_refused(
    tiny_daemon: DaemonProcess, grammar
):
    with tiny_daemon.connect() as connection:
        [refusal] = connection.ask(generate(id="bad", grammar=grammar))
        assert (refusal["id"], refusal["code"]) == ("bad", "invalid_request")
        assert "grammar" in refusal["message"]
        assert connection.ask(generate(max_tokens=1))[-1]["type"] == "done"


def test_a_client_that_leaves_during_a_long_prefill_frees_its_slot(
    make_daemon: MakeDaemon, tiny_f32
):
    n_ctx = 40_000
    daemon = make_daemon(
        {
            "backend": [llamacpp(tiny_f32, n_ctx=n_ctx)],
            "admission": {"max_active": 1, "max_queued": 1},
        }
    ).start()
    leaver = daemon.connect()
    leaver.send(generate("x" * 30_000, max_tokens=n_ctx))
    daemon.catch_up()
    leaver.close()
    assert daemon.ask(max_tokens=1)[-1]["type"] == "done"


def test_a_worker_killed_mid_stream_costs_one_error_and_comes_back_the_same(
    make_daemon: MakeDaemon, tiny_f32
):
    daemon = make_daemon({"backend": [llamacpp(tiny_f32, n_ctx=100_000)]}).start()
    before = greedy(daemon, max_tokens=20)[-1]
    with daemon.connect() as connection:
        connection.send(generate(id="lost", max_tokens=100_000))
        connection.frame()
        daemon.kill_worker()
        last = connection.frames()[-1]
        assert (last["id"], last["code"]) == ("lost", "backend_unavailable")
        again = connection.ask(generate(temperature=0, seed=0, max_tokens=20))
    assert untimed(again[-1]) == before


def test_a_quantised_model_decodes(make_daemon: MakeDaemon, tiny_q8_0):
    daemon = make_daemon({"backend": [llamacpp(tiny_q8_0, prompt_cache_mb=0)]}).start()
    first, second = (greedy(daemon, max_tokens=60)[-1] for _ in range(2))
    assert first == second
    assert len(set(first["content"])) > 10


def test_the_embedded_model_answers_in_words(make_daemon: MakeDaemon):
    backend = llamacpp("embedded:chat", n_ctx=512)
    daemon = make_daemon({"backend": [backend], "admission": {"max_active": 1}}).start()
    *tokens, done = greedy(daemon, "What is the capital of France?", max_tokens=24)
    assert done["content"] == content_of(tokens)
    assert len(done["content"].split()) > 3
