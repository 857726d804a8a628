import pytest

from fuzz import lines
from fuzz.lines import MAX_GROWTH_BYTES, Share, Tally, try_line, try_share
from fuzz.mutator import N_GRID, Mutant
from tests.cases import each_case

SEED = 1
DEEP = b'{"type":"tool_result","tool_call_id":"t","content":['
ECHOES = {
    "role": b'{"messages":[{"role":"%b","content":""}]}' % (b"x" * 5000),
    "type": b'{"type":"%b","type":"cancel","id":"r"}' % (b"x" * 5000),
    "cache": b'{"cache":"%b","messages":[{"role":"user","content":[{"type":"text",'
    b'"text":""}]}]}' % (b"\\u0001" * 1500),
    "tool_choice": b'{"tool_choice":{"name":"%b"},"messages":[{"role":"user","content":'
    b'[{"type":"text","text":""}]}]}' % (b"x" * 5000),
    "priority": b'{"priority":%b,"messages":[{"role":"user","content":[{"type":"text",'
    b'"text":""}]}]}' % (b"9" * 4300),
    "attachment_id": b'{"messages":[{"role":"user","content":[{"type":"image",'
    b'"attachment_id":"%b"}]}]}' % (b"x" * 5000),
    "place": b'{"messages":[{"role":"user","content":[%b{"type":"image",'
    b'"attachment_id":""}%b]}]}' % (DEEP * 400, b"]}" * 400),
    "place of a wrong type": b'{"messages":[{"role":"user","content":[%b0%b]}]}'
    % (DEEP * 400, b"]}" * 400),
}


def findings(surface, line):
    tally = Tally()
    try_line(Mutant(surface, line), 0, tally)
    return [each.what for each in tally.findings.values()]


@each_case("surface", ["v1", "v2", "embed", "rerank"])
@each_case("line", ECHOES.values(), ids=ECHOES)
def test_no_error_echoes_thousands_of_bytes(surface, line):
    assert findings(surface, line) == []


@pytest.mark.slow
@pytest.mark.parametrize(
    "indices",
    [range(0, N_GRID, 11), range(N_GRID, N_GRID + 6000)],
    ids=["grid", "drawn"],
)
def test_hostile_lines_are_refused_or_sound(indices):
    tally = try_share(Share(SEED, indices))
    assert tally.n_lines == len(indices)
    assert tally.findings == {}


def test_drawn_lines_get_to_the_end_of_every_path():
    tally = try_share(Share(SEED, range(N_GRID, N_GRID + 1500)))
    wanted = {f"{surface} plan" for surface in ("v1", "v2", "embed", "rerank")}
    wanted |= {"v2 InvalidRequestError", "v2 InvalidFrameError", "v2 aside"}
    assert wanted | {"admin command"} <= set(tally.outcomes)


def test_a_finding_is_kept_once_and_counted(monkeypatch):
    monkeypatch.setattr(lines, "judge", lambda *_: 1 // 0)
    tally = try_share(Share(SEED, range(5, 8)))
    [(kind, finding)] = tally.findings.items()
    assert "ZeroDivisionError" in kind
    assert (finding.number, tally.n_findings[kind]) == (5, 3)
    assert not tally.is_sound


def test_a_line_that_takes_long_is_a_finding(monkeypatch):
    monkeypatch.setattr(lines, "MAX_LINE_S", 0.0)
    tally = try_share(Share(SEED, range(1)))
    assert "a line took" in next(iter(tally.findings.values())).what


def test_memory_that_grows_is_not_sound():
    assert Tally(growth_bytes=MAX_GROWTH_BYTES).is_sound
    assert not Tally(growth_bytes=MAX_GROWTH_BYTES + 1).is_sound


def test_shares_add_up():
    first, second = (try_share(Share(SEED, range(at, 200, 2))) for at in (0, 1))
    first.add(second)
    whole = try_share(Share(SEED, range(200)))
    assert (first.n_lines, first.outcomes) == (whole.n_lines, whole.outcomes)
