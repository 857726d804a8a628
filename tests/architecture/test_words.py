"""Names and prose use the terms of the field: no metaphors, and no class name twice."""

import ast
import re
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

from tests.cases import each_case

ROOT = Path(__file__).parents[2]
METAPHORS = frozenset(
    re.findall(
        r"\w+",
        """
    baggage boxed bystander chatter crowd custody desk desks disguise
    door doors dues entrance farewell forgiven goodbye guest guests
    holdings hope hopes inbox ledger liar lie lied lies luggage lying mailbox newcomer
    outbox outlet outlets parcel parcels patience pulse reception rehearsal repertoire
    scribe seldom stepdown stranger strangers surroundings ticker turnstile
    whoever workshop
    box boxes conduct cue cues
    """,
    )
)
"""Words that were private names of this project, in names and in prose."""
METAPHORS_AS_NAMES = frozenset(["looking", "seeing"])
"""Words that are plain in prose, and say nothing as the name of a function or module."""
RIDDLE = re.compile(r"\b(?:what|who) (?:is|are|was|were) no (?!longer|more)\w+")
"""Text such as "what is no text", where the language has a noun."""
ALLOWED = {
    "worker.boxed": "a log event",
    "decoder.boxed": "a log event",
    '"box"': "a check's name in the output of inferd doctor",
    "`box`": "a check's name in the output of inferd doctor",
    '"patience"': "a parameter of whisper.cpp",
}
"""Texts in which others rely on one of these words."""
SUBTITLES = (
    "inferd/client/transcripts.py",
    "inferd/cli/transcription/",
    "inferd/cli/commands/transcribe.py",
    "docs/speech.md",
    "tests/model/test_commands.py",
    "tests/unit/client/test_transcripts.py",
)
"""Where a cue is a line of subtitles, as WebVTT has it."""
DOCUMENTS = ("README.md", "CHANGELOG.md", "CONTRIBUTING.md", "THREAT_MODEL.md")
SOURCES = sorted(
    path.relative_to(ROOT).as_posix()
    for path in [
        *(ROOT / "inferd").rglob("*.py"),
        *(ROOT / "tools").rglob("*.py"),
        *(ROOT / "protocol").rglob("*.py"),
        *(ROOT / "protocol").glob("*.md"),
        *(ROOT / "docs").glob("*.md"),
        *(ROOT / "systemd").rglob("*.*"),
        *(ROOT / name for name in DOCUMENTS),
    ]
    if path.is_file()
)


def words(text: str) -> list[str]:
    """Split text into words, and names into the words that they are made of."""
    split = re.sub(r"([a-z0-9])([A-Z])", r"\1 \2", text)
    return [word.lower() for word in re.findall(r"[A-Za-z]+", split)]


def found_words(source: str, text: str) -> set[str]:
    tree = ast.parse(text) if source.endswith(".py") else ast.Module([], [])
    for allowed in ALLOWED:
        text = text.replace(allowed, "")
    found = set(banned_in(source).intersection(words(text)))
    found |= set(RIDDLE.findall(" ".join(text.split()).lower()))
    return {*found, *METAPHORS_AS_NAMES.intersection(defined(tree))}


def banned_in(source: str) -> frozenset[str]:
    return METAPHORS - {"cue", "cues"} if source.startswith(SUBTITLES) else METAPHORS


def definitions(tree: ast.AST) -> Iterator[str]:
    """Give the names of functions and classes."""
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            yield node.name


def defined(tree: ast.AST) -> Iterator[str]:
    """Give the words in names of functions, classes and what is assigned to."""
    for node in ast.walk(tree):
        match node:
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name):
                yield from words(name)
            case ast.ClassDef(name=name) | ast.arg(arg=name):
                yield from words(name)
            case ast.Name(id=name, ctx=ast.Store()):
                yield from words(name)
            case ast.Attribute(attr=name, ctx=ast.Store()):
                yield from words(name)
            case _:
                pass


CONTRACTS = ("callback", "events")
"""Packages of the client whose classes have the names of a contract."""


def public_classes() -> dict[str, list[str]]:
    """Map each public class name of the product to the modules that define it."""
    modules = defaultdict(list)
    for path in sorted((ROOT / "inferd").rglob("*.py")):
        if path.parent in [ROOT / "inferd/client" / each for each in CONTRACTS]:
            continue
        for node in ast.parse(path.read_text()).body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                modules[node.name].append(path.relative_to(ROOT).as_posix())
    return dict(modules)


def test_no_text_has_a_private_metaphor():
    found = {each: found_words(each, (ROOT / each).read_text()) for each in SOURCES}
    assert {source: words for source, words in found.items() if words} == {}


def test_what_tests_define_has_plain_names():
    """Files, functions and classes: the texts of tests may have any word."""
    found = set()
    for path in (ROOT / "tests").rglob("*.py"):
        source = path.relative_to(ROOT).as_posix()
        banned = banned_in(source) | METAPHORS_AS_NAMES
        for name in (path.stem, *definitions(ast.parse(path.read_text()))):
            if banned & set(words(name)):
                found.add(f"{source}: {name}")
    assert found == set()


def test_every_exception_is_needed():
    everything = "".join((ROOT / source).read_text() for source in SOURCES)
    assert [text for text in ALLOWED if text not in everything] == []


def test_a_public_class_is_defined_in_one_module():
    twice = {name: found for name, found in public_classes().items() if len(found) > 1}
    assert twice == {}


@each_case(
    ("text", "found"),
    [
        ("class GuestList: ...", {"guest"}),
        ("MAX_GUESTS = 1", {"guests"}),
        ("x = 1  # a lie", {"lie"}),
        ('log.info("worker.boxed")', set()),
        ("def seeing(): ...", {"seeing"}),
        ("y = 1  # worth seeing", set()),
        ('"""Refuse what is\n no text."""', {"what is no text"}),
        ("inboxes, outdoors, belief = 1, 2, 3", set()),
    ],
)
def test_words_are_found_whole_in_names_and_prose(text, found):
    assert found_words("inferd/example.py", text) == found
