"""Documents that follow from the code are fresh, and what they show is so."""

import json
import re
import shutil
from collections.abc import Callable
from functools import cache, partial
from pathlib import Path

import msgspec
import pytest

from inferd.config.parse import parse_config
from inferd.server.admin.reload import RELOADABLE_ADMISSION, RELOADABLE_LIMITS
from inferd.wire import codec
from tests.cases import each_case
from tools import regenerate
from tools.documents import schemas
from tools.documents.decisions import read_adr, status_text
from tools.documents.markdown import UnreadableError

ROOT = Path(__file__).parents[2]
RECORDS = sorted((ROOT / "adr").glob("0*.md"))
BOOKS = sorted(
    [
        *ROOT.glob("*.md"),
        *(ROOT / "protocol").glob("*.md"),
        *(ROOT / "docs").glob("*.md"),
    ]
)
ALL = [*BOOKS, *RECORDS, ROOT / "adr" / "README.md"]
SECTIONS = [
    "Question",
    "What matters",
    "Decision",
    "Bounds",
    "What we turned down",
    "Consequences",
]
PAGE_LINES = 60


def place(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def blocks(path: Path, language: str) -> list[str]:
    pattern = rf"^```{language}\n(.*?)^```$"
    return re.findall(pattern, path.read_text(), re.MULTILINE | re.DOTALL)


def lines(language: str) -> list[str]:
    texts = [text for path in BOOKS for text in blocks(path, language)]
    return [line for text in texts for line in text.splitlines()]


FROM_CODE = {
    name: cache(getattr(regenerate, name))
    for name in (
        "api_references",
        "completions",
        "error_table",
        "manual_pages",
        "metric_list",
        "schema_text",
        "settings_reference",
    )
}
"""What follows from the code alone, and so is the same in each test."""


@pytest.fixture
def tree(tmp_path, monkeypatch):
    """A copy of all that is generated and of what that follows from."""
    for name in ("adr", "protocol", "docs", "share", "systemd"):
        shutil.copytree(ROOT / name, tmp_path / name)
    monkeypatch.setattr(regenerate, "ROOT", tmp_path)
    for name, function in FROM_CODE.items():
        monkeypatch.setattr(regenerate, name, function)
    return tmp_path


def run(monkeypatch, *arguments):
    monkeypatch.setattr("sys.argv", ["regenerate", *arguments])
    return regenerate.main()


# --- generated files --------------------------------------------------------------


def test_generated_files_are_fresh(monkeypatch, capsys):
    assert run(monkeypatch, "--check") == 0, capsys.readouterr().out


def test_a_stale_file_is_named_left_alone_and_then_written(tree, monkeypatch, capsys):
    stale = tree / "protocol" / "errors.md"
    stale.write_text("old")
    assert run(monkeypatch, "--check") == 1
    assert capsys.readouterr().out == "stale: protocol/errors.md\n"
    assert stale.read_text() == "old"
    assert run(monkeypatch) == 0
    assert run(monkeypatch, "--check") == 0


def test_a_schema_of_no_message_is_stale_and_then_removed(tree, monkeypatch):
    (tree / "protocol" / "schema" / "gone.json").write_text("{}")
    assert run(monkeypatch, "--check") == 1
    assert run(monkeypatch) == 0
    assert not (tree / "protocol" / "schema" / "gone.json").exists()


@pytest.mark.parametrize("place", [".", "user"])
def test_the_unit_of_no_surface_is_stale_and_then_removed(
    place, tree, monkeypatch, capsys
):
    unit = tree / "systemd" / place / "inferd-gone.socket"
    unit.write_text("[Socket]\n")
    assert run(monkeypatch, "--check") == 1
    stale = capsys.readouterr().out
    assert stale == f"stale: {unit.relative_to(tree)}\n"
    assert run(monkeypatch) == 0
    assert not unit.exists()


def test_a_service_that_misses_a_socket_is_stale_and_then_written(tree, monkeypatch):
    service = tree / "systemd" / "inferd@.service"
    whole = service.read_text()
    service.write_text(whole.replace(" inferd-embed@%i.socket", ""))
    assert run(monkeypatch, "--check") == 1
    assert run(monkeypatch) == 0
    assert service.read_text() == whole


def test_a_service_that_names_no_sockets_stops_it(tree, monkeypatch, capsys):
    service = tree / "systemd" / "user" / "inferd.service"
    service.write_text(service.read_text().replace("\nSockets=", "\n# Sockets="))
    assert run(monkeypatch, "--check") == 2
    assert "Sockets= does not end with sockets" in capsys.readouterr().err


def test_a_record_that_cannot_be_read_stops_the_index(tree, monkeypatch, capsys):
    (tree / "adr" / "0099-odd.md").write_text("# Odd\n")
    assert run(monkeypatch) == 2
    assert "0099-odd.md" in capsys.readouterr().err


def test_a_number_is_used_once(tree, monkeypatch, capsys):
    shutil.copy(tree / "adr" / RECORDS[1].name, tree / "adr" / "0001-again.md")
    assert run(monkeypatch, "--check") == 2
    assert "0001 is used twice" in capsys.readouterr().err


SCHEMAS = sorted((ROOT / "protocol" / "schema").glob("*.json"))


@each_case("path", SCHEMAS, ids=place)
def test_a_schema_has_no_message_that_only_a_reader_makes(path):
    text = path.read_text()
    assert "Unknown" not in text
    assert '"unknown"' not in text


@each_case("path", SCHEMAS, ids=place)
def test_a_schema_defines_all_that_it_refers_to_and_nothing_besides(path):
    schema = json.loads(path.read_text())
    named = set(re.findall(r'"#/\$defs/(\w+)"', path.read_text()))
    assert named == set(schema["$defs"])


@each_case("name", schemas.MESSAGES)
def test_a_schema_of_an_answer_says_that_a_later_one_may_have_more(name):
    schema = json.loads((ROOT / "protocol" / "schema" / f"{name}.json").read_text())
    assert ("later version" in schema.get("$comment", "")) == (name in schemas.ANSWERS)


# --- decision records -------------------------------------------------------------

HEADER = """# 0042. A thing is so

| | |
|---|---|
| Status | accepted |
| Date | 2026-11-21 |
| Touches | wire |
| Threats | F-1, F-2 |

"""


def test_a_header_is_read(tmp_path):
    path = tmp_path / "0042-a-thing.md"
    path.write_text(HEADER + "## Question\n")
    record = read_adr(path)
    assert (record.number, record.title) == ("0042", "A thing is so")
    assert (record.status, record.threats) == ("accepted", "F-1, F-2")


@pytest.mark.parametrize(
    ("right", "wrong"),
    [
        ("accepted", "agreed"),
        ("accepted", "superseded by us"),
        ("2026-11-21", "2026-11-31"),
        ("2026-11-21", "today"),
        ("F-1, F-2", "F-1 F-2"),
        ("| Touches | wire |\n", ""),
        ("# 0042", "# 42"),
        ("# 0042", "# 0043"),
        ("|---|---|", "| --- | --- |"),
    ],
)
def test_a_wrong_header_is_refused(tmp_path, right, wrong):
    path = tmp_path / "0042-a-thing.md"
    path.write_text(HEADER.replace(right, wrong))
    with pytest.raises(UnreadableError, match=r"0042-a-thing\.md"):
        read_adr(path)


AMENDED = "| Amended by | [0043](0043-b.md), [0044](0044-c.md) |\n"


def test_a_header_may_link_to_later_records(tmp_path):
    path = tmp_path / "0042-a-thing.md"
    path.write_text(HEADER.replace("F-2 |\n", "F-2 |\n" + AMENDED))
    assert status_text(read_adr(path)) == "accepted, amended by 0043, 0044"


@pytest.mark.parametrize("file", ["0001-native.md", "9999-none.md"])
def test_a_record_is_amended_by_later_records_that_exist(
    tree, monkeypatch, capsys, file
):
    text = HEADER.replace("F-2 |\n", f"F-2 |\n| Amended by | [{file[:4]}]({file}) |\n")
    (tree / "adr" / "9998-a-thing.md").write_text(text.replace("0042", "9998"))
    assert run(monkeypatch, "--check") == 2
    assert f"cannot be amended by {file}" in capsys.readouterr().err


@each_case("path", RECORDS, ids=place)
def test_a_record_has_every_section_on_one_page(path):
    text = path.read_text()
    assert re.findall(r"^## (.+)$", text, re.MULTILINE) == SECTIONS
    assert len(text.splitlines()) <= PAGE_LINES


# --- what documents show ----------------------------------------------------------


def anchors(path: Path) -> set[str]:
    """Give the names that links use for the headings of a document."""
    titles = re.findall(r"^#+ (.+)$", path.read_text(), re.MULTILINE)
    return {re.sub(r"[^\w -]", "", each.lower()).replace(" ", "-") for each in titles}


@each_case("path", ALL, ids=place)
def test_links_lead_to_headings(path):
    found = re.findall(r"\]\(([^)#:]*)#([^)#:]+)\)", path.read_text())
    assert [
        (target, heading)
        for target, heading in found
        if heading not in anchors(path.parent / target if target else path)
    ] == []


@each_case("path", ALL, ids=place)
def test_links_lead_somewhere(path):
    targets = re.findall(r"\]\(([^)#:]+)\)", path.read_text())
    assert [target for target in targets if not (path.parent / target).exists()] == []


FOLDERS = (
    "adr|attack|bench|docs|fuzz|inferd|proofs|protocol|systemd|tests|tools|torture"
)
WRITTEN = {"attack/report.md", "bench/report.md", "tests/torture/report.md"}
"""Files that a target of the Makefile writes."""


NOT_MODULES = {
    *("inferd.lock", "inferd.ndjson", "inferd.socket"),
    *("inferd.second_segment_offset", "inferd.toml"),
}
"""Names of files, of a unit, of a key in model files, and of a manual page."""


def code_in(path: Path) -> str:
    """Return what a document has between backquotes."""
    return "\n".join(re.findall(r"`([^`\n]+)`", path.read_text()))


@each_case("path", ALL, ids=place)
def test_files_that_are_named_exist(path):
    named = re.findall(
        rf"(?<![\w./~}}-])(?:{FOLDERS})/[a-z0-9_./-]*[a-z0-9_/]", code_in(path)
    )
    missing = {name for name in named if not (ROOT / name).exists()}
    assert missing - WRITTEN == set()


@cache
def files_of_tests() -> frozenset[str]:
    return frozenset(each.name for each in (ROOT / "tests").rglob("test_*.py"))


@each_case("path", ALL, ids=place)
def test_files_of_tests_that_are_named_exist(path):
    named = set(re.findall(r"\btest_\w+\.py\b", code_in(path)))
    assert named - files_of_tests() == set()


@each_case("path", ALL, ids=place)
def test_modules_that_are_named_exist(path):
    named = set(re.findall(rf"(?<![\w./-])(?:{FOLDERS})(?:\.[a-z_]+)+", code_in(path)))
    missing = {name for name in named if not is_module_or_attribute(name)}
    assert missing - NOT_MODULES == set()


def is_module_or_attribute(name: str) -> bool:
    """Tell whether a module of this name exists, or one that has such an attribute."""
    path = ROOT / name.replace(".", "/")
    if path.is_dir() or path.with_suffix(".py").is_file():
        return True
    modules = (path.parent.with_suffix(".py"), path.parent / "__init__.py")
    text = "".join(each.read_text() for each in modules if each.is_file())
    return re.search(rf"^(?:def |class )?{path.name}\b", text, re.MULTILINE) is not None


def test_paths_in_the_recipes_of_contributing_exist():
    text = (ROOT / "CONTRIBUTING.md").read_text()
    named = set(
        re.findall(r"`([a-z][a-z0-9_]*(?:/[a-z0-9_.-]+)+/?|[a-z_]+\.py)`", text)
    )
    assert len(named) >= 30
    missing = {
        name
        for name in named
        if not name.endswith("/report.md")  # what a target writes
        and not name.startswith("build/")
        and not (ROOT / name).exists()
        and not (ROOT / "inferd" / name).exists()
    }
    assert missing == set()


@pytest.mark.parametrize(
    ("table", "keys"),
    [("admission", RELOADABLE_ADMISSION), ("limits", RELOADABLE_LIMITS)],
)
def test_the_settings_that_a_reload_applies_are_listed(table, keys):
    _, _, section = (
        (ROOT / "docs/operating.md").read_text().partition("a reload applies |")
    )
    [row] = re.findall(rf"^\| `\[{table}\]` \| (.+) \|$", section, re.MULTILINE)
    assert re.findall(r"`(\w+)`", row) == [*keys]


def test_examples_of_configuration_are_accepted():
    examples = [text for path in BOOKS for text in blocks(path, "toml")]
    assert examples
    for text in examples:
        assert parse_config(text).served


READERS_BY_TYPE: dict[str, Callable[[bytes], object]] = {
    "cancel": partial(codec.decode_aside, takes_appends=False),
    "append": partial(codec.decode_aside, takes_appends=True),
    "describe": partial(codec.decode_aside, takes_appends=False),
    "models": codec.decode_embed_response,
    "reply": codec.decode_reply,
    "token": codec.decode_text_response,
    "error": codec.decode_text_response,
    "status": codec.decode_text_response,
    "frame": codec.decode_blocks_response,
    "done": codec.decode_blocks_response,
    "embeddings": codec.decode_embed_response,
    "rerank": codec.decode_rerank_response,
}
READERS_BY_FIELD = {
    "command": codec.decode_command,
    "input": codec.decode_embed,
    "documents": codec.decode_rerank,
    "messages": codec.decode_blocks,
}


def reader_of(frame: dict[str, object]) -> Callable[[bytes], object]:
    """Find what reads a frame, by its looks."""
    match frame:
        case {"type": "status", "id": "admin"}:
            return codec.decode_status
        case {"type": "done", "content": str()}:
            return codec.decode_text_response
        case {"messages": [{"content": str()}, *_]}:
            return codec.decode_generate
        case {"type": str(name)}:
            return READERS_BY_TYPE[name]
        case _:
            [field] = READERS_BY_FIELD.keys() & frame
            return READERS_BY_FIELD[field]


def frames() -> list[str]:
    """The examples that are frames; others are a log's, or what a command prints."""
    names = {"type", *READERS_BY_FIELD}
    return [
        line for line in lines("json") if any(f'"{name}":' in line for name in names)
    ]


@each_case("line", frames())
def test_an_example_of_a_frame_is_one_without_a_field_that_nobody_knows(line):
    whole = re.sub(r',"\w+":(?:{…}|\[…]|…)', "", line)
    frame = json.loads(whole)
    reader = reader_of(frame)
    message = reader(whole.encode())
    if reader is not codec.decode_status:
        assert set(frame) <= set(json.loads(msgspec.json.encode(message)))


def test_there_are_examples_of_frames():
    assert len(frames()) >= 10
