"""Valid lines to hostile ones, the same ones for the same numbers.

The first lines are a grid: every field with every nasty value, on every surface. Those
after it are drawn. Most mutations keep a line's structure and change a value, so that it
gets past the decoder; the others break bytes.
"""

import random
import re
from collections.abc import Callable
from itertools import accumulate, islice
from typing import Final, NamedTuple

from fuzz.corpus import CLEAN, SEEDS, SURFACES, SurfaceName

MAX_LINE_BYTES: Final = 2 * 1024 * 1024
"""Longer ones are cut: over the bounds that one line meets below the cap."""
FOREIGN_SHARE: Final = 0.1
"""How many lines go to another surface than their own."""
LONG_SHARE: Final = 0.08
"""How many values are of thousands of bytes: each costs as much as ten others."""
PILE_SHARE: Final = 0.001
"""How many values are of hundreds of kilobytes, or elements of tens of thousands."""
MAX_CHOICES: Final = 64
"""Places of a line among which one is drawn; further ones are not looked for."""
WEIGHTS: Final = {"v1": 3, "v2": 6, "embed": 2, "rerank": 2, "admin": 1}
"""How often each surface is drawn: by its number of fields."""

DIGITS: Final = b"1234567890" * 500


def deep(opening: bytes, closing: bytes, depth: int) -> bytes:
    """Nest something so deep."""
    return opening * depth + closing * depth


NUMBERS: Final = (
    *(b"0", b"-0", b"-0.0", b"-1", b"1", b"1.0", b"1.5", b"2.0000000000000004"),
    *(b"1e999", b"-1e999", b"1e-999", b"5e-324", b"1.7976931348623157e308", b"1e2"),
    *(b"4294967294", b"4294967295", b"4294967296", b"2147483648", b"-2147483649"),
    *(b"9223372036854775807", b"9223372036854775808", b"-9223372036854775809"),
    *(b"18446744073709551615", b"18446744073709551616", b"9007199254740993"),
    *(b"NaN", b"Infinity", b"-Infinity", b"nan", b"0x10", b"01", b"+1", b"1."),
    *(b".5", b"1e", b"1e+", b"--1", b"1_000"),
    *(DIGITS[:400], b"0." + DIGITS[:400], b"1e" + DIGITS[:400], b"1e-" + DIGITS[:400]),
    *(DIGITS[:310] + b".0", DIGITS[:20], b"-" + DIGITS[:20]),
)
STRINGS: Final = (
    *(
        b'""',
        b'" "',
        b'"a"',
        b'"r1"',
        b'"r2"',
        b'"cancel"',
        b'"append"',
        b'"\\u0063ancel"',
    ),
    *(b'"\\ud800"', b'"\\udc00"', b'"\\udc00\\ud800"', b'"\\ud83d\\ude00"'),
    *(b'"\\u0000"', b'"\x00"', b'"\\u2028"', b'"\xe2\x80\xa8"', b'"\xef\xbb\xbf"'),
    *(b'"\xff\xfe"', b'"\xc0\x80"', b'"\xed\xa0\x80"', b'"\xf4\x90\x80\x80"'),
    *(b'"\xe2\x82"', b'"\\u00"', b'"\\x41"', b'"\t"', b'"\\n"', b'"\r\\r"'),
    *(b'"\\u0022\\\\"', b'"\xf0\x9f\x98\x80"', b'"e\xcc\x81"', b'"\\u202e"'),
    *(b'"' + b"x" * 257 + b'"', b'"' + "é".encode() * 129 + b'"', b'"', b"'a'"),
)
VALUES: Final = (
    *(b"null", b"true", b"false", b"[]", b"{}", b"[null]", b"[[]]", b'{"":0}', b""),
    *(b'{"name":"f"}', b'{"type":"text"}', b'{"kind":"image"}', b"[1,2]", b'["a"]'),
    *(b"nul", b"tru", b"undefined", b"//", b"/* */0", b"[,]", b"{,}", b'{"a"}'),
    *(deep(b"[", b"]", 30), deep(b'{"a":', b"}", 30).replace(b":}", b":0}")),
    *(b"[" + b"0," * 70 + b"0]", b"[" + b'"x",' * 20 + b'"x"]'),
)
LONG: Final = (
    *(DIGITS, b"-" + DIGITS, DIGITS[:4300], DIGITS[:4301], b"0." + DIGITS),
    *(b'"' + b"x" * 5000 + b'"', b'"' + b"\\u0001" * 1500 + b'"'),
    *(b'"' + b"|" * 4097 + b'"', b'"' + b"\xe2\x80\xa8" * 1500 + b'"'),
    *(deep(b"[", b"]", 400), deep(b"[", b"]", 5000), b"[" * 3000, b'{"a":' * 3000),
    *(deep(b'{"a":', b"}", 400).replace(b":}", b":0}"), b"[" + b'"x",' * 300 + b'"x"]'),
)
ALL_VALUES: Final = (*NUMBERS, *STRINGS, *VALUES, *LONG)
PIECES: Final = (
    *(b"\x00", b"\xff", b"\xc3", b"\xed\xa0\x80", b"\xef\xbb\xbf", b"\xe2\x80\xa8"),
    *(b"\r", b"\t", b" ", b"\n", b'"', b"\\", b"{", b"}", b"[", b"]", b",", b":"),
    *(b"\\u", b"\\ud800", b"1e999", b"NaN", b"//", b"\x1b[2J", b"\x7f", b"\x85"),
)
TAGS: Final = (
    *(b"text", b"image", b"audio", b"video", b"tool_use", b"tool_result", b"unknown"),
    *(
        b"",
        b"TEXT",
        b"thinking",
        b"cancel",
        b"append",
        b"hologram",
        b"\\u0074ext",
        b"x" * 5000,
    ),
)
BLOCKS: Final = (
    *(b'{"type":"hologram","x":1}', b'{"type":"image","attachment_id":"no"}'),
    *(b'{"type":"text","text":""}', b'{"type":"text","text":7}', b'{"type":7}', b"{}"),
    *(b'{"type":"tool_use","tool_call_id":"t","name":"f","input":[1]}', b"0"),
)
FIELDS: Final = tuple(
    b"type id messages role content temperature top_p top_k min_p repeat_penalty "
    b"presence_penalty frequency_penalty logit_bias seed max_tokens min_tokens stop "
    b"stop_token_ids logprobs response_format tool_choice thinking stream priority "
    b"deadline_ms cache prefill_only progress attachments tools kind width height bytes "
    b"sample_rate name description input_schema tool_call_id input text attachment_id "
    b"schema pattern grammar image_token_budget dimensions task query documents top_n "
    b"fd open end language translate timestamps model principal strict keep_alive_s "
    b"min_n_ctx describe via input_tokens token_ids tokens speech_logprobs "
    b"command 7 4294967295".split()
)
DEPTHS: Final = (1, 1, 2, 2, 3, 5, 15, 16, 17, 50, 100, 300, 480, 490, 500)

_STRING: Final = rb'"(?:[^"\\]|\\.)*+"'
_NUMBER: Final = rb"-?\d[\d.eE+-]*"
SCALAR: Final = re.compile(rb"%b(?!\s*:)|%b|true|false|null" % (_STRING, _NUMBER))
KEY: Final = re.compile(rb'"\w+"(?=:)')
MEMBER: Final = re.compile(rb'"\w+":(?:%b|%b|true|false|null)' % (_STRING, _NUMBER))
TAG: Final = re.compile(rb'(?<="type":")\w*|(?<="kind":")\w*')
BLOCK: Final = re.compile(rb'\{"type":"[^{}\[\]]*\}')
ELEMENT: Final = re.compile(rb"(?<=[\[,])(?:\{[^{}\[\]]*\}|%b|%b)" % (_STRING, _NUMBER))

Mutation = Callable[[random.Random, bytes], bytes]


class Mutant(NamedTuple):
    """A line to try."""

    surface: SurfaceName
    line: bytes
    """Without the newline at its end; there may be others."""


N_GRID: Final = len(SURFACES) * len(FIELDS) * len(ALL_VALUES)


def mutant(seed: int, index: int, *, rng: random.Random | None = None) -> Mutant:
    """Make the line of a number; the grid's are the same for every seed.

    Args:
        seed: of the run.
        index: of the line.
        rng: used in place of a new generator, which takes longer to make.
    """
    if index < N_GRID:
        return _of_grid(index)
    rng = rng or random.Random()  # noqa: S311  # nobody's secret
    rng.seed((seed << 64) + index)
    surface = rng.choices(SURFACES, cum_weights=_CUM_SURFACES)[0]
    line = rng.choice(SEEDS[surface])
    for _ in range(rng.choice((1, 1, 1, 1, 2, 2, 3, 6))):
        line = rng.choices(_MUTATIONS, cum_weights=_CUM_WEIGHTS)[0](rng, line)
        line = line[:MAX_LINE_BYTES]
    if rng.random() < FOREIGN_SHARE:
        surface = rng.choice(SURFACES)
    return Mutant(surface, line)


def _of_grid(index: int) -> Mutant:
    index, at = divmod(index, len(ALL_VALUES))
    surface_at, field_at = divmod(index, len(FIELDS))
    surface = SURFACES[surface_at]
    line = _with_member(CLEAN[surface], FIELDS[field_at], ALL_VALUES[at])
    return Mutant(surface, line)


# --- what keeps the structure -----------------------------------------------------------


def _place(
    rng: random.Random, pattern: re.Pattern[bytes], line: bytes
) -> tuple[int, int] | None:
    """Draw one of the first matches."""
    places = [match.span() for match in islice(pattern.finditer(line), MAX_CHOICES)]
    return rng.choice(places) if places else None


def _replace(
    rng: random.Random, pattern: re.Pattern[bytes], line: bytes, new: bytes
) -> bytes:
    """Put something in the place of one match."""
    place = _place(rng, pattern, line)
    return line if place is None else line[: place[0]] + new + line[place[1] :]


def _nasty(rng: random.Random) -> bytes:
    share = rng.random()
    if share < PILE_SHARE:
        return b'"' + rng.choice((b"x", b"\\u0001", b"\xe2\x82\xac")) * 200_000 + b'"'
    if share < LONG_SHARE:
        return rng.choice(LONG)
    return rng.choice(rng.choice((NUMBERS, STRINGS, VALUES)))


def _value(rng: random.Random, line: bytes) -> bytes:
    """Put another value in the place of one, of the same kind more often than not."""
    place = _place(rng, SCALAR, line)
    if place is None:
        return line
    start, end = place
    kind = _kind_of(line[start:end]) if rng.random() < 2 / 3 else None
    new = _nasty(rng) if kind is None else rng.choice(kind)
    return line[:start] + new + line[end:]


def _kind_of(scalar: bytes) -> tuple[bytes, ...] | None:
    if scalar.startswith(b'"'):
        return STRINGS
    return NUMBERS if scalar[:1] in b"-0123456789" else None


def _field(rng: random.Random, line: bytes) -> bytes:
    """Add a member to the outermost object, so that each option meets each value."""
    return _with_member(line, rng.choice(FIELDS), _nasty(rng))


def _with_member(line: bytes, name: bytes, value: bytes) -> bytes:
    at = line.find(b"{") + 1
    return line[:at] + b'"%b":%b,' % (name, value) + line[at:]


def _rename(rng: random.Random, line: bytes) -> bytes:
    return _replace(rng, KEY, line, b'"%b"' % rng.choice(FIELDS))


def _repeat_member(rng: random.Random, line: bytes) -> bytes:
    place = _place(rng, MEMBER, line)
    if place is None:
        return line
    start, end = place
    member = line[start:end]
    other = member if rng.random() < 1 / 2 else _value(rng, member)
    return line[:start] + other + b"," + line[start:]


def _drop_member(rng: random.Random, line: bytes) -> bytes:
    return _replace(rng, MEMBER, line, b"").replace(b",,", b",").replace(b"{,", b"{")


def _retag(rng: random.Random, line: bytes) -> bytes:
    return _replace(rng, TAG, line, rng.choice(TAGS))


def _block(rng: random.Random, line: bytes) -> bytes:
    """Put a block into results of tools, some or many of them deep."""
    depth = rng.choice(DEPTHS)
    nested = (
        b'{"type":"tool_result","tool_call_id":"t","content":[' * depth
        + rng.choice(BLOCKS)
        + b"]}" * depth
    )
    return _replace(rng, BLOCK, line, nested)


def _multiply(rng: random.Random, line: bytes) -> bytes:
    """Repeat an element of an array, now and then over every bound on their number."""
    place = _place(rng, ELEMENT, line)
    if place is None:
        return line
    start, end = place
    n_more = rng.choice((1, 1, 1, 1, 2, 2, 16, 32, 33, 64, 65, 256, 2048))
    if rng.random() < PILE_SHARE:
        n_more = 30_000
    return line[:end] + (b"," + line[start:end]) * n_more + line[end:]


# --- what breaks bytes ------------------------------------------------------------------


def _cut_points(rng: random.Random, line: bytes) -> tuple[int, int]:
    start = rng.randrange(len(line) + 1)
    return start, min(len(line), start + rng.choice((1, 2, 5, 20, 200)))


def _flip(rng: random.Random, line: bytes) -> bytes:
    flipped = bytearray(line)
    for _ in range(rng.choice((1, 1, 2, 8)) if line else 0):
        flipped[rng.randrange(len(line))] ^= 1 << rng.randrange(8)
    return bytes(flipped)


def _overwrite(rng: random.Random, line: bytes) -> bytes:
    start, end = _cut_points(rng, line)
    return line[:start] + rng.randbytes(end - start) + line[end:]


def _truncate(rng: random.Random, line: bytes) -> bytes:
    at = rng.randrange(len(line) + 1)
    return line[:at] if rng.random() < 3 / 4 else line[at:]


def _delete(rng: random.Random, line: bytes) -> bytes:
    start, end = _cut_points(rng, line)
    return line[:start] + line[end:]


def _duplicate(rng: random.Random, line: bytes) -> bytes:
    start, end = _cut_points(rng, line)
    n_times = rng.choice((2, 2, 2, 2, 2, 3, 3, 10, 300))
    return line[:start] + line[start:end] * n_times + line[end:]


def _splice(rng: random.Random, line: bytes) -> bytes:
    other = rng.choice(SEEDS[rng.choice(SURFACES)])
    return line[: rng.randrange(len(line) + 1)] + other[rng.randrange(len(other)) :]


def _insert(rng: random.Random, line: bytes) -> bytes:
    at = rng.randrange(len(line) + 1)
    piece = rng.choice(PIECES) if rng.random() < 2 / 3 else _nasty(rng)
    return line[:at] + piece + line[at:]


def _bracket(rng: random.Random, line: bytes) -> bytes:
    """Nest the whole line."""
    depth = rng.choice((1, 1, 1, 100, 1000))
    return b"[" * depth + line + b"]" * depth


_WEIGHTED: Final[tuple[tuple[Mutation, int], ...]] = (
    (_value, 25),
    (_field, 25),
    (_rename, 6),
    (_repeat_member, 5),
    (_drop_member, 4),
    (_retag, 6),
    (_block, 6),
    (_multiply, 6),
    (_flip, 6),
    (_overwrite, 3),
    (_truncate, 4),
    (_delete, 4),
    (_duplicate, 4),
    (_splice, 4),
    (_insert, 6),
    (_bracket, 1),
)
_CUM_SURFACES: Final = list(accumulate(WEIGHTS[name] for name in SURFACES))
_MUTATIONS: Final = [mutation for mutation, _ in _WEIGHTED]
_CUM_WEIGHTS: Final = list(accumulate(weight for _, weight in _WEIGHTED))
