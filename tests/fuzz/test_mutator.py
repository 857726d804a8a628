import json
from collections import Counter

from fuzz.corpus import CLEAN, SEEDS, SURFACES
from fuzz.judge import judge
from fuzz.mutator import (
    ALL_VALUES,
    FIELDS,
    MAX_LINE_BYTES,
    N_GRID,
    WEIGHTS,
    mutant,
)
from inferd.wire.blocks import BlocksRequest
from inferd.wire.requests import EmbedRequest, GenerateRequest, RerankRequest
from tests.cases import each_case

DRAWN = range(N_GRID, N_GRID + 2000)


@each_case("surface", SURFACES)
def test_every_seed_is_sound(surface):
    sound = {"plan", "aside", "command"}
    outcomes = [judge(surface, line) for line in SEEDS[surface]]
    unserved = [line for line in SEEDS[surface] if b"response_format" in line]
    assert outcomes[0] in sound
    assert Counter(each in sound for each in outcomes)[False] <= len(unserved)


@each_case(
    "request_type", [GenerateRequest, BlocksRequest, EmbedRequest, RerankRequest]
)
def test_every_field_of_a_request_is_in_the_grid(request_type):
    names = {name.encode() for name in request_type.__struct_encode_fields__}
    assert names <= set(FIELDS)


def test_the_grid_has_every_field_with_every_value_on_every_surface():
    lines = {mutant(0, index) for index in range(N_GRID)}
    assert len(lines) == N_GRID == len(SURFACES) * len(FIELDS) * len(ALL_VALUES)
    surface, line = mutant(0, N_GRID - 1)
    fields = json.loads(line)
    assert surface == SURFACES[-1]
    assert fields.keys() >= json.loads(CLEAN[surface]).keys()


def test_a_line_follows_from_its_numbers_alone():
    ahead = [mutant(7, index) for index in DRAWN[:200]]
    assert [mutant(7, index) for index in reversed(DRAWN[:200])] == ahead[::-1]
    assert [mutant(8, index) for index in DRAWN[:200]] != ahead


def test_lines_are_bounded_and_of_every_surface():
    drawn = [mutant(7, index) for index in DRAWN]
    assert {each.surface for each in drawn} == set(SURFACES) == set(WEIGHTS)
    assert max(len(each.line) for each in drawn) <= MAX_LINE_BYTES
