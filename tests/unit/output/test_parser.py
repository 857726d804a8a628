import time

import pytest
from hypothesis import assume, example, given, settings, strategies as st

from inferd.backend.events import MalformedToolCall, Span, Text, Thinking, ToolUse
from inferd.backend.job import ToolSpec
from inferd.dialects.calls import json_syntax
from inferd.dialects.calls.string_tracker import JsonStringTracker
from inferd.dialects.dialect import ParsedCall, Region
from inferd.limits.protocol import MAX_TOOL_CALLS
from inferd.output import parser as blocks
from inferd.output.parser import TOOL_CALL_MAX_CHARS, Block, BlockParser, merge_deltas
from inferd.wire.responses import Logprob
from tests.cases import each_case
from tests.unit.output.oracle import Parsed, read_calls, split

THOUGHT = Region(
    holds="thought", begins=("<think>", "[THINK]"), ends=("</think>", "[/THINK]")
)
CALLS = Region(
    holds="calls", begins=("<calls>",), ends=("</calls>", "<end>"), read=read_calls
)
LAST_CALLS = Region(holds="calls", begins=("[CALLS]",), read=read_calls)
BARE_CALLS = Region(
    holds="calls", begins=("f{",), read=read_calls, only_first=True, keeps_begin=True
)
JUDGED_CALLS = Region(
    holds="calls",
    begins=("x",),
    read=read_calls,
    only_first=True,
    keeps_begin=True,
    classify=lambda text, _tools: {"{": True, "f": False, "<": False}.get(text[1:2]),
)
HEADER = Region(holds="nothing", begins=("<|start|>",), ends=("",))
NOTE = Region(holds="nothing", begins=("<note>",), ends=("</note>",))
MARK_ALONE = Region(holds="text", begins=("[MARK]",), ends=("",), keeps_begin=True)
ANSWER = Region(holds="text", begins=("<say>",), ends=("<end>",))
TAGS = (THOUGHT, CALLS)
ALL = (
    *(THOUGHT, CALLS, LAST_CALLS, BARE_CALLS, JUDGED_CALLS, HEADER, MARK_ALONE, NOTE),
    ANSWER,
)

CALL = 'f{"a": 1}'
MARKED = [marker for each in ALL for marker in (*each.begins, *each.ends) if marker]
FRAGMENTS = ["<", ">", "/", "<t", "hink>", "</t", "calls>", "<calls", "[", "f", "x"]
BODIES = [CALL, "-", f"{CALL}\n{CALL}", "f{", "{", "\n", " ", "é"]
PIECES = st.lists(st.sampled_from(MARKED + MARKED + FRAGMENTS + BODIES), max_size=12)

JSON = Region(
    holds="calls",
    begins=("<json>",),
    ends=("</json>", "<end>"),
    read=lambda text, _tools: json_syntax.read_calls(text),
    string_tracker=JsonStringTracker,
)
JSON_CALL = '{"name": "f", "arguments": {"a": "</json>"}}'
JSON_PIECES = st.lists(
    st.sampled_from(
        [
            *("<json>", "</json>", "<end>", '"', "\\", "{", "}", "[", "]", "</", "x"),
            *(
                "\n",
                '{"',
                '{"\\"',
                '"}',
                '": "',
                JSON_CALL,
                "<json>" + JSON_CALL + "</json>",
            ),
        ]
    ),
    max_size=14,
)

MARK = st.text("ab!", min_size=1, max_size=4)


def read_marks(text, _tools):
    return None if "c" in text else [ParsedCall("f", {})] * text.count("a")


ALONE = Region(
    holds="calls", begins=("a",), ends=("",), read=read_marks, keeps_begin=True
)
FIRST = Region(holds="thought", begins=("!",), only_first=True)
KEPT = Region(holds="text", begins=("a",), keeps_begin=True)
REGIONS = st.lists(
    st.builds(
        Region,
        holds=st.sampled_from(["thought", "text", "calls", "nothing"]),
        begins=st.lists(MARK, min_size=1, max_size=2).map(tuple),
        ends=st.lists(MARK | st.just(""), max_size=2).map(tuple),
        read=st.just(read_marks),
        only_first=st.booleans(),
        keeps_begin=st.booleans(),
    ),
    max_size=3,
)


def outcome(regions, pieces, *, was_cut=False, **options):
    parser = BlockParser(regions, **options)
    said = [each for piece in pieces for each in parser.feed(piece)]
    said += parser.finish(was_cut=was_cut)
    warnings = [each for each in said if isinstance(each, MalformedToolCall)]
    return merge_deltas([each for each in said if each not in warnings]), warnings


def opened(is_open, regions=ALL):
    thoughts = [each.begins[0] for each in regions if each.holds == "thought"]
    return thoughts[0] if is_open else ""


def expected(regions, text, **options):
    parsed = Parsed(regions, text, **options)
    return parsed.blocks, parsed.warnings


def text_of(said):
    return "".join([each.delta for each in said if isinstance(each, Text)])


def no_call(text):
    return text.replace("}", ")").replace("-", "_")


def use(number, name="f", **arguments):
    return ToolUse(tool_call_id=f"tc-{number}", name=name, input=arguments or {"a": 1})


# --- properties ---------------------------------------------------------------------


@settings(max_examples=60)
@given(PIECES.map("".join).flatmap(split), st.booleans(), st.booleans())
@example(["<calls>", CALL], False, False)
@example(["<calls>", CALL], False, True)
@example(["[CALLS]", CALL], False, True)
@example(["\n<think>x</think>", " f{", '"a": 1}'], False, False)
@example(["x f{", '"a": 1}'], False, False)
@example(["\n", "x", '{"a": 1}'], False, False)
@example(["x", "f{", '"a": 1}'], False, False)
@example(["x<ca", f"lls>{CALL}</calls>"], False, False)
@example(["<think>y</think>x"], False, True)
@example(["x[THINK]<think>"], False, False)
@example(["<say>x<end>"], False, False)
def test_any_split_gives_the_same_blocks_and_warnings(pieces, opens_thought, was_cut):
    found = outcome(ALL, pieces, open_thought=opened(opens_thought), was_cut=was_cut)
    options = {"opens_thought": opens_thought, "was_cut": was_cut}
    assert found == expected(ALL, "".join(pieces), **options)


@settings(max_examples=40)
@given(PIECES.map("".join).flatmap(split), st.integers(0, 40))
@example(["<calls>", CALL, "</calls>"], len(CALL))
@example(["<calls>", CALL, "</calls><think>"], len(CALL) - 1)
@example(["<calls>abc</cal", "ls"], 3)
@example(["<calls>abc</cal", "ls>"], 2)
@example(['f{"a', '": 1}'], 3)
def test_any_split_gives_the_same_where_calls_are_too_long(pieces, bound):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(blocks, "TOOL_CALL_MAX_CHARS", bound)
        found = outcome(ALL, pieces)
    assert found == expected(ALL, "".join(pieces), bound=bound)


@settings(max_examples=80)
@given(JSON_PIECES.map("".join).flatmap(split), st.booleans(), st.integers(0, 90))
@example(["<json>", JSON_CALL, "</json>"], False, 90)
@example(["<json>", JSON_CALL], True, 90)
@example(['<json>{"a</js', 'on>b\n"c'], False, 90)
@example(['<json>{"a</json>', "b\n", '<json>{"c'], False, 9)
@example(['<json>["</json>"] {"<end>', 'x" y</json>'], False, 90)
def test_any_split_gives_the_same_where_markers_stand_in_strings(
    pieces, was_cut, bound
):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(blocks, "TOOL_CALL_MAX_CHARS", bound)
        found = outcome((JSON,), pieces, was_cut=was_cut)
    text = "".join(pieces)
    assert found == expected((JSON,), text, was_cut=was_cut, bound=bound)


@settings(max_examples=50)
@given(REGIONS, st.text("ab!c ", max_size=24).flatmap(split), st.booleans())
@example([ALONE], ["aa", "b"], False)
@example([FIRST, KEPT], ["a!"], False)
def test_markers_may_be_parts_of_each_other(regions, pieces, opens_thought):
    assume(not opens_thought or any(each.holds == "thought" for each in regions))
    open_thought = opened(opens_thought, regions)
    found = outcome(regions, pieces, open_thought=open_thought)
    text = "".join(pieces)
    assert found == expected(regions, text, opens_thought=opens_thought)


@settings(max_examples=40)
@given((st.text(max_size=9) | PIECES.map("".join)).map(no_call).flatmap(split))
def test_without_a_call_nothing_is_lost_or_doubled(pieces):
    found, warnings = outcome((CALLS, LAST_CALLS, BARE_CALLS), pieces)
    assert text_of(found) == "".join(pieces)
    assert all(warning.raw in "".join(pieces) for warning in warnings)


@settings(max_examples=40)
@given(PIECES.map("".join).flatmap(split))
def test_no_delta_is_empty_and_no_neighbours_are_of_one_kind(pieces):
    parser = BlockParser(ALL)
    for said in [*map(parser.feed, pieces), parser.finish()]:
        assert said == merge_deltas(said)
        assert all(each.delta for each in said if hasattr(each, "delta"))


# --- what is certain is given -------------------------------------------------------


@each_case(
    ("text", "certain"),
    [
        ("a <think", [Text("a ")]),
        ("a <t", [Text("a ")]),
        ("a <tx", [Text("a <tx")]),
        ("a </think", [Text("a </think")]),
        ("<think>a <calls", [Thinking("a <calls")]),
        ("<think>a </think", [Thinking("a ")]),
        ("<think>a</think>b</t", [Thinking("a"), Text("b</t")]),
        ("<calls>" + CALL + "</calls", []),
        ("a<calls>" + CALL + "</calls>b", [Text("a"), use(0), Text("b")]),
        ("[CALLS]" + CALL + "</calls>", []),
        ("<note>a</note", []),
        ("<say>a<en", [Text("a")]),
        ("a<en", [Text("a<en")]),
        (" f", [Text(" ")]),
        (" fx", [Text(" fx")]),
        ("a f", [Text("a f")]),
    ],
)
def test_only_what_may_become_a_marker_that_matters_is_held_back(text, certain):
    assert BlockParser(ALL).feed(text) == certain
    parser = BlockParser(ALL)
    assert (
        merge_deltas([each for char in text for each in parser.feed(char)]) == certain
    )


def test_only_the_markers_are_taken_out():
    text = "\n<think>\na\n</think>\n\nb <think></think> c\n"
    certain = [Text("\n"), Thinking("\na\n"), Text("\n\nb  c\n")]
    assert outcome(ALL, [text]) == (certain, [])


def test_without_regions_all_is_text():
    text = "".join(MARKED)
    assert BlockParser(()).feed(text) == [Text(text)]


def test_what_is_text_is_counted_and_what_is_not():
    parser = BlockParser(ALL)
    parser.feed(f"<think>a</think>b<calls>{CALL}</calls>")
    parser.feed("<calls>no</calls>c<say")
    assert parser.runs() == [
        *[(7, "marker", 0), (1, "thought", 0), (8, "marker", 0)],
        *[(1, "text", 0), (24, "calls", 1), (18, "text", 0)],
    ]
    parser.finish()
    assert parser.runs() == [(4, "text", 0)]


def told_as_text(runs, text):
    at = 0
    for run in runs:
        yield text[at : at + run.n_chars] if run.is_text else ""
        at += run.n_chars
    assert at == len(text)


@settings(max_examples=60)
@given(
    PIECES.map("".join).flatmap(split) | JSON_PIECES.map("".join).flatmap(split),
    st.booleans(),
    st.booleans(),
    st.integers(0, 40),
)
def test_all_characters_are_counted_where_they_go(pieces, is_cut, is_structured, bound):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(blocks, "TOOL_CALL_MAX_CHARS", bound)
        parser = BlockParser((*ALL, JSON), is_structured=is_structured)
        said = [each for piece in pieces for each in parser.feed(piece)]
        said += parser.finish(was_cut=is_cut)
    text = "".join(told_as_text(parser.runs(), "".join(pieces)))
    assert text == text_of(said)


@each_case("rest", ["", " ", "; ", '; {"name'])
def test_all_characters_of_forced_calls_that_are_cut_are_counted(rest):
    region = Region(
        holds="calls",
        begins=("[CALLS]",),
        read=json_syntax.read_calls,
        read_cut=json_syntax.read_cut_calls,
    )
    parser = BlockParser([region])
    text = f"[CALLS]{JSON_CALL}; {JSON_CALL}{rest}"
    parser.feed(text)
    _, _, *warned = parser.finish(was_cut=True, is_forced=True)
    assert "".join(told_as_text(parser.runs(), text)) == text_of(warned)
    assert text_of(warned) == rest.removeprefix("; ").strip()


def test_text_that_waited_for_a_longer_marker_is_given_at_the_end():
    thought = Region(holds="thought", begins=("a",), ends=("b",))
    calls = Region(holds="calls", begins=("abcabc!",), ends=("!",), read=read_calls)
    parser = BlockParser((thought, calls))
    assert parser.feed("abcabc") == []
    assert parser.finish() == [Text("cc")]


# --- regions ------------------------------------------------------------------------


def test_an_answer_may_start_in_a_thought():
    found, _ = outcome(TAGS, ["a", "</think>b"], open_thought="<think>")
    assert found == [Thinking("a"), Text("b")]


def test_an_open_thought_needs_a_region_with_its_marker():
    with pytest.raises(ValueError, match="no thought begins with the marker"):
        BlockParser([CALLS], open_thought="<think>")


def test_a_thought_without_an_end_is_a_thought():
    assert outcome(TAGS, ["<think>a</thi"]) == ([Thinking("a</thi")], [])


def test_a_region_may_be_spelled_in_several_ways():
    text = "<think>a[/THINK]b[THINK]c</think>d"
    certain = [Thinking("a"), Text("b"), Thinking("c"), Text("d")]
    assert outcome(ALL, [text]) == (certain, [])


def test_a_region_of_nothing_is_for_nobody():
    assert outcome(ALL, ["a<note>b<think>c</note>d<note>e"]) == ([Text("ad")], [])


def test_a_region_of_nothing_may_be_its_begin_alone():
    assert outcome(ALL, ["<|start|>a<|start|><|start|>b"]) == ([Text("ab")], [])


def test_a_marker_that_means_nothing_by_itself_may_be_kept():
    raw = "[CALLS][MARK]"
    found = outcome(ALL, [f"a[MARK]b{raw}"])
    assert found == ([Text(f"a[MARK]b{raw}")], [MalformedToolCall(raw)])


def test_in_a_region_of_text_others_open_and_its_own_end_counts():
    text = "<say>a<think>b</think><end>c<say>d<end><say>e"
    certain = [Text("a"), Thinking("b"), Text("<end>cde")]
    assert outcome(ALL, [text]) == (certain, [])


def test_of_two_regions_with_one_begin_the_first_counts():
    text = f"<calls>{CALL}</calls>"
    note = Region(holds="nothing", begins=("<calls>",), ends=("</calls>",))
    assert outcome((CALLS, note), [text]) == ([use(0)], [])
    assert outcome((note, CALLS), [text]) == ([], [])
    assert outcome((CALLS, note), [text], calls_tools=False) == ([], [])


@each_case("before", ["", "\n ", "\n<think>f{</think>\n", "<note>x</note>"])
def test_what_comes_only_first_comes_after_white_space_and_thoughts(before):
    said, _ = outcome(ALL, [before])
    assert outcome(ALL, [before + CALL]) == ([*said, use(0)], [])


@each_case(
    "before", ["a ", "<think></think>.", f"<calls>{CALL}</calls>", "<calls>-</calls>"]
)
def test_what_comes_only_first_is_text_after_anything_else(before):
    found, warnings = outcome(ALL, [before + CALL])
    assert text_of(found).endswith(CALL)
    assert warnings == []


def test_white_space_before_what_is_no_call_is_kept():
    assert outcome(ALL, ["\n f{no}"]) == (
        [Text("\n f{no}")],
        [MalformedToolCall("f{no}")],
    )


# --- calls --------------------------------------------------------------------------


def test_calls_are_numbered_and_what_is_none_takes_no_number():
    texts = [f"<calls>{body}</calls>" for body in (CALL, "{", f"{CALL}\n{CALL}", "-")]
    found, warnings = outcome(TAGS, [*texts, f"<calls>{CALL}<end>"])
    assert found == [use(0), Text(texts[1]), use(1), use(2), use(3)]
    assert warnings == [MalformedToolCall(texts[1])]


def test_a_warning_stands_before_its_text():
    raw = "<calls>no</calls>"
    said = [Text("a"), MalformedToolCall(raw), Text(raw + "b")]
    assert BlockParser(TAGS).feed(f"a{raw}b") == said


def test_calls_are_read_with_the_tools_there_are():
    seen = []

    def read(text, tools):
        seen.append((text, tools))
        return [ParsedCall(text, {})]

    tools = (ToolSpec(name="g", description="", input_schema="{}"),)
    region = Region(holds="calls", begins=("<",), ends=(">",), read=read)
    found, _ = outcome((region,), ["<g>"], tools=tools)
    assert found == [ToolUse(tool_call_id="tc-0", name="g", input={})]
    assert seen == [("g", tools)]


def test_who_calls_no_tools_gets_text_without_a_warning():
    text = f"<calls>{CALL}</calls>[CALLS]f{{"
    assert outcome(ALL, [text], calls_tools=False) == ([Text(text)], [])
    found, _ = outcome(
        ALL, ["a</think>", CALL], open_thought="<think>", calls_tools=False
    )
    assert found == [Thinking("a"), Text(CALL)]


@pytest.mark.parametrize("fence", ["```", "```\n", "`"])
def test_a_marker_counts_in_a_code_block_as_anywhere(fence):
    found, warnings = outcome(ALL, [f"{fence}<calls>{CALL}</calls>{fence}"])
    assert (found, warnings) == ([Text(fence), use(0), Text(fence)], [])
    text = f"{fence}<calls>name(arguments)</calls>{fence}"
    found, warnings = outcome(ALL, [text])
    assert found == [Text(text)]
    assert warnings == [MalformedToolCall("<calls>name(arguments)</calls>")]


@pytest.mark.parametrize("fence", ["```", "```\n", "`"])
def test_a_call_that_opens_with_plain_text_is_text_in_a_code_block(fence):
    text = f"{fence}{CALL}{fence}"
    assert outcome(ALL, [text]) == ([Text(text)], [])


@pytest.mark.parametrize("begin", ["<calls>", "[CALLS]", ""])
def test_a_call_that_is_whole_at_the_end_of_the_turn_is_a_call(begin):
    assert outcome(ALL, [begin + CALL]) == ([use(0)], [])


@pytest.mark.parametrize("begin", ["[CALLS]", ""])
def test_a_call_that_nothing_closes_is_a_call_in_an_answer_that_was_cut(begin):
    assert outcome(ALL, [begin + CALL], was_cut=True) == ([use(0)], [])


@each_case("was_cut", [False, True])
@each_case("text", ["<calls>", f"<calls>{CALL}</cal", "[CALLS]", "f{"])
def test_a_call_that_is_not_whole_at_the_end_is_text(text, was_cut):
    found = outcome(ALL, [text], was_cut=was_cut)
    assert found == ([Text(text)], [MalformedToolCall(text)])


def test_calls_over_the_limit_are_text_with_a_warning():
    blocks, warnings = outcome(ALL, [f"<calls>{CALL}</calls>"] * (MAX_TOOL_CALLS + 1))
    assert sum(isinstance(each, ToolUse) for each in blocks) == MAX_TOOL_CALLS
    assert blocks[-1] == Text(f"<calls>{CALL}</calls>")
    assert len(warnings) == 1


def test_a_call_without_its_end_is_text_in_an_answer_that_was_cut():
    text = "<calls>" + CALL
    found = outcome(ALL, [text], was_cut=True)
    assert found == ([Text(text)], [MalformedToolCall(text)])


def test_a_call_of_the_longest_kind_is_a_call():
    padding = "\n" * (TOOL_CALL_MAX_CHARS - len(CALL))
    found = outcome(TAGS, ["<calls>" + padding, CALL, "</calls>"])
    assert found == ([use(0)], [])


def test_a_call_over_the_bound_is_text_at_once():
    parser = BlockParser(TAGS)
    kept = "<calls>" + "x" * TOOL_CALL_MAX_CHARS
    assert parser.feed(kept) == []
    assert parser.feed("y</cal") == [MalformedToolCall(kept), Text(kept + "y")]
    assert parser.feed("ls>z") == [Text("</calls>z")]


def test_no_call_begins_inside_one_over_the_bound():
    parser = BlockParser(TAGS)
    parser.feed("<calls>" + "x" * (TOOL_CALL_MAX_CHARS + 1))
    inner = "<calls>" + CALL + "</calls>"
    assert parser.feed(inner) == [Text(inner)]
    assert parser.feed(inner) == [use(0)]


# --- markers in strings -------------------------------------------------------------


def test_a_marker_in_a_string_of_a_call_ends_nothing():
    quoted = ToolUse(tool_call_id="tc-0", name="f", input={"a": "</json>"})
    text = f"a<json>{JSON_CALL}</json>b"
    assert outcome((JSON,), [text]) == ([Text("a"), quoted, Text("b")], [])
    assert outcome((JSON,), [*text]) == ([Text("a"), quoted, Text("b")], [])


def test_a_call_that_breaks_ends_at_its_first_marker_after_all():
    broken = '<json>{"name": "f</json>'
    parser = BlockParser((JSON,))
    assert parser.feed(broken) == []
    later = [MalformedToolCall(broken), Text(f"{broken}\n")]
    assert parser.feed("\n") == later
    assert parser.feed(f"<json>{JSON_CALL}</json>") == [
        ToolUse(tool_call_id="tc-0", name="f", input={"a": "</json>"})
    ]


def test_a_string_without_an_end_is_text_at_the_end_or_over_the_bound():
    begin = '<json>{"name": "f</json> and more'
    assert outcome((JSON,), [begin]) == ([Text(begin)], [MalformedToolCall(begin)])
    parser = BlockParser((JSON,))
    kept = begin + "x" * (TOOL_CALL_MAX_CHARS - len(begin) + len("<json>"))
    assert parser.feed(kept) == []
    assert parser.feed("y") == [MalformedToolCall(kept), Text(kept + "y")]
    assert parser.feed('</json>"</json>z') == [Text('</json>"</json>z')]
    assert parser.feed("<json>[]</json>") == []


def time_of(begin, n):
    """Measure the processor's time for a call that seems to go on so many times."""
    times = []
    for _ in range(3):
        parser = BlockParser((JSON,))
        began_at = time.thread_time()
        for _ in range(n):
            parser.feed(begin)
        parser.finish()
        times.append(time.thread_time() - began_at)
    return min(times)


@pytest.mark.slow
@pytest.mark.parametrize(
    "begin", ['<json>{"a</json>', '<json>\\"</json>', '<json>["\\"</json>']
)
@pytest.mark.alone
def test_calls_that_seem_to_go_on_and_on_take_time_by_their_length(begin):
    assert time_of(begin, 4000) < 16 * time_of(begin, 500)  # by the square, 64 times


# --- merging ------------------------------------------------------------------------


def test_runs_of_one_kind_become_one_block():
    given_one_by_one: list[Block] = [
        Text("a"),
        Text("b"),
        Thinking("c"),
        Thinking("d"),
        Text("e"),
    ]
    assert merge_deltas(given_one_by_one) == [Text("ab"), Thinking("cd"), Text("e")]
    assert merge_deltas([use(0), use(1)]) == [use(0), use(1)]
    assert merge_deltas([]) == []


def test_what_was_said_at_different_times_stays_apart():
    said = [Text(word, span=Span(start_ms=n, end_ms=n)) for n, word in enumerate("ab")]
    assert merge_deltas(said) == said


def test_the_probabilities_of_a_run_are_kept_in_order():
    a, b, c = [
        Logprob(token=token, id=0, bytes=[], logprob=0.0, top_logprobs=[])
        for token in "abc"
    ]
    assert merge_deltas([Text("ab", (a, b)), Text("c", (c,))]) == [
        Text("abc", (a, b, c))
    ]
