import pytest
from hypothesis import assume, example, given, settings, strategies as st

from inferd.backend import MalformedToolCall, Markers, Text, Thinking, ToolUse
from inferd.output import blocks
from inferd.output.blocks import TOOL_CALL_MAX_CHARS, Block, BlockParser, merge
from inferd.wire.responses import Logprob
from tests.unit.output.oracle import parsed, split

THOUGHTS = Markers(thinking=("<think>", "</think>"))
CALLS = Markers(tool_call=("<tool_call>", "</tool_call>"))
TAGS = Markers(thinking=THOUGHTS.thinking, tool_call=CALLS.tool_call)
CALL = '{"name":"f","arguments":{}}'
BODIES = [CALL, '{"name":"f","parameters":"{}"}', '{"name":"f"}', "{", "\n", "é"]
FRAGMENTS = ["<", ">", "/", "<t", "hink>", "</t", "ool_call>", "<tool_call", "x"]
MARKED = ["<think>", "</think>", "<tool_call>", "</tool_call>"]
PIECES = st.lists(st.sampled_from(MARKED + MARKED + FRAGMENTS + BODIES), max_size=12)

MARK = st.text("ab!", min_size=1, max_size=4)
PAIRS = st.none() | st.tuples(MARK, MARK)
MARKERS = st.builds(Markers, thinking=PAIRS, tool_call=PAIRS)


def outcome(markers, pieces, **options):
    parser = BlockParser(markers, **options)
    given = [block for piece in pieces for block in parser.feed(piece)]
    return merge(given + parser.finish()), parser.warnings


def text_of(given):
    return "".join([block.delta for block in given if not isinstance(block, ToolUse)])


def no_call(text):
    return text.replace('"name"', '"title"')


def use(number, name="f", **arguments):
    return ToolUse(tool_call_id=f"tc-{number}", name=name, input=arguments)


# --- properties ---------------------------------------------------------------------


@settings(max_examples=40)
@given(PIECES.map("".join).flatmap(split), st.booleans(), st.integers(0, 40))
@example(["<tool_call>", CALL, "</tool_call>"], False, len(CALL))
@example(["<tool_call>", CALL, "</tool_call><think>"], False, len(CALL) - 1)
@example(["<tool_call>abc</tool", "_cal"], False, 3)
@example(["<tool_call>abc</tool", "_call>"], False, 2)
def test_any_split_gives_the_same_blocks_and_warnings(pieces, starts_thinking, bound):
    place = "thinking" if starts_thinking else "text"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(blocks, "TOOL_CALL_MAX_CHARS", bound)
        found = outcome(TAGS, pieces, starts_thinking=starts_thinking)
    assert found == parsed(TAGS, "".join(pieces), place=place, bound=bound)


@settings(max_examples=40)
@given(MARKERS, st.text("ab!c", max_size=24).flatmap(split))
@example(Markers(thinking=("a", "b"), tool_call=("abcabc!", "!")), ["abca", "bc"])
def test_markers_may_be_parts_of_each_other(markers, pieces):
    thinking, tool_call = markers.thinking, markers.tool_call
    assume(thinking is None or tool_call is None or thinking[0] != tool_call[0])
    assert outcome(markers, pieces) == parsed(markers, "".join(pieces))


@settings(max_examples=40)
@given((st.text(max_size=9) | PIECES.map("".join)).map(no_call).flatmap(split))
def test_without_a_call_nothing_is_lost_or_doubled(pieces):
    found, warnings = outcome(CALLS, pieces)
    assert text_of(found) == "".join(pieces)
    assert all(warning.raw in "".join(pieces) for warning in warnings)


@settings(max_examples=40)
@given(PIECES.map("".join).flatmap(split))
def test_no_delta_is_empty_and_no_neighbours_are_of_one_kind(pieces):
    parser = BlockParser(TAGS)
    for given_at_once in [*map(parser.feed, pieces), parser.finish()]:
        assert given_at_once == merge(given_at_once)
        assert all(block.delta for block in given_at_once if hasattr(block, "delta"))


# --- what is certain is given -------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "certain"),
    [
        ("a <think", [Text("a ")]),
        ("a <t", [Text("a ")]),
        ("a <tx", [Text("a <tx")]),
        ("a </think", [Text("a </think")]),
        ("<think>a <tool_call", [Thinking("a <tool_call")]),
        ("<think>a </think", [Thinking("a ")]),
        ("<think>a</think>b</t", [Thinking("a"), Text("b</t")]),
        ("<tool_call>" + CALL + "</tool_call", []),
        ("a<tool_call>" + CALL + "</tool_call>b", [Text("a"), use(0), Text("b")]),
    ],
)
def test_only_what_may_become_a_marker_that_matters_is_held_back(text, certain):
    assert BlockParser(TAGS).feed(text) == certain
    parser = BlockParser(TAGS)
    assert merge([block for char in text for block in parser.feed(char)]) == certain


def test_only_the_markers_are_taken_out():
    text = "\n<think>\na\n</think>\n\nb <think></think> c\n"
    expected = [Text("\n"), Thinking("\na\n"), Text("\n\nb  c\n")]
    assert outcome(TAGS, [text]) == (expected, [])


def test_without_markers_all_is_text():
    text = "".join(MARKED)
    assert BlockParser(Markers()).feed(text) == [Text(text)]


def test_an_answer_may_start_in_a_thought():
    found, _ = outcome(TAGS, ["a", "</think>b"], starts_thinking=True)
    assert found == [Thinking("a"), Text("b")]


def test_an_answer_starts_in_no_thought_that_cannot_end():
    with pytest.raises(ValueError, match="without thinking markers"):
        BlockParser(CALLS, starts_thinking=True)


def test_a_thought_without_an_end_is_a_thought():
    assert outcome(TAGS, ["<think>a</thi"]) == ([Thinking("a</thi")], [])


def test_text_that_waited_for_a_longer_marker_is_given_at_the_end():
    parser = BlockParser(Markers(thinking=("a", "b"), tool_call=("abcabc!", "!")))
    assert parser.feed("abcabc") == []
    assert parser.finish() == [Text("cc")]


# --- tool calls ---------------------------------------------------------------------


def test_calls_are_numbered_and_what_is_none_takes_no_number():
    texts = [f"<tool_call>{body}</tool_call>" for body in (CALL, "{", CALL)]
    found, warnings = outcome(TAGS, texts)
    assert found == [use(0), Text(texts[1]), use(1)]
    assert warnings == [MalformedToolCall(texts[1])]


def test_a_call_has_its_name_and_arguments():
    body = '{"name":"g","arguments":{"a":[1,null]}}'
    found, warnings = outcome(TAGS, [f"<tool_call>\n{body}\n</tool_call>"])
    assert (found, warnings) == ([use(0, "g", a=[1, None])], [])


@pytest.mark.parametrize("text", ["<tool_call>", "<tool_call>" + CALL + "</tool_"])
def test_a_call_without_an_end_is_text(text):
    assert outcome(TAGS, [text]) == ([Text(text)], [MalformedToolCall(text)])


def test_a_call_of_the_longest_kind_is_a_call():
    padding = " " * (TOOL_CALL_MAX_CHARS - len(CALL))
    found, warnings = outcome(TAGS, ["<tool_call>" + padding, CALL, "</tool_call>"])
    assert (found, warnings) == ([use(0)], [])


def test_a_call_over_the_bound_is_text_at_once():
    parser = BlockParser(TAGS)
    kept = "<tool_call>" + "x" * TOOL_CALL_MAX_CHARS
    assert parser.feed(kept) == []
    assert parser.feed("y</tool_") == [Text(kept + "y")]
    assert parser.feed("call>z") == [Text("</tool_call>z")]
    assert parser.warnings == [MalformedToolCall(kept)]


def test_no_call_begins_inside_one_over_the_bound():
    parser = BlockParser(TAGS)
    parser.feed("<tool_call>" + "x" * (TOOL_CALL_MAX_CHARS + 1))
    inner = "<tool_call>" + CALL + "</tool_call>"
    assert parser.feed(inner) == [Text(inner)]
    assert parser.feed(inner) == [use(0)]
    assert len(parser.warnings) == 1


# --- merging ------------------------------------------------------------------------


def test_runs_of_one_kind_become_one_block():
    given_one_by_one: list[Block] = [
        Text("a"),
        Text("b"),
        Thinking("c"),
        Thinking("d"),
        Text("e"),
    ]
    assert merge(given_one_by_one) == [Text("ab"), Thinking("cd"), Text("e")]
    assert merge([use(0), use(1)]) == [use(0), use(1)]
    assert merge([]) == []


def test_the_probabilities_of_a_run_are_kept_in_order():
    a, b, c = [
        Logprob(token=token, id=0, bytes=[], logprob=0.0, top_logprobs=[])
        for token in "abc"
    ]
    assert merge([Text("ab", (a, b)), Text("c", (c,))]) == [Text("abc", (a, b, c))]
