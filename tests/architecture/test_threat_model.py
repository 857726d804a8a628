"""``THREAT_MODEL.md`` against ``tests/threats``, the code and the decisions."""

import re
from pathlib import Path

from tests.cases import each_case

ROOT = Path(__file__).parents[2]
TEXT = (ROOT / "THREAT_MODEL.md").read_text()
THREATS = {
    int(number): body
    for number, body in re.findall(
        r"^## F-(\d+) .+\n\n((?:(?!## ).*\n?)*)", TEXT, re.MULTILINE
    )
}
LABELS = [
    "Who can do it",
    "What they gain",
    "Status",
    "Where it is stopped",
    "Proof",
    "What is left",
]
STATUSES = {"mitigated.", "accepted.", "not applicable."}


def field(body: str, label: str) -> str:
    [text] = re.findall(rf"^- \*\*{label}\*\*: (.*(?:\n  .*)*)", body, re.MULTILINE)
    return str(text)


ATTACKS = {
    path: [int(number) for number in re.findall(r"F-(\d+)", numbers)]
    for path, numbers in re.findall(
        r"^\| `(attack/kinds/\S+)` \| (.+) \|$", TEXT, re.MULTILINE
    )
}


def proofs(body: str) -> list[str]:
    return re.findall(r"`(tests/threats/\S+\.py)`", field(body, "Proof"))


def test_threats_are_numbered_without_gaps():
    assert list(THREATS) == list(range(1, len(THREATS) + 1))
    assert len(THREATS) >= 19


@each_case("body", THREATS.values(), ids=THREATS)
def test_a_threat_answers_every_question(body):
    assert re.findall(r"^- \*\*(.+?)\*\*: ", body, re.MULTILINE) == LABELS
    assert field(body, "Status") in STATUSES


@each_case("number", THREATS)
def test_what_is_mitigated_has_its_proof(number):
    if field(THREATS[number], "Status") == "mitigated.":
        [proof] = proofs(THREATS[number])
        assert re.search(
            r"^(?:async )?def test_", (ROOT / proof).read_text(), re.MULTILINE
        )


@each_case("path", sorted(set(re.findall(r"`(\w+/[\w./]+)`", TEXT))))
def test_a_path_in_the_threat_model_exists(path):
    assert (ROOT / path).exists()


def test_every_test_of_a_threat_is_the_proof_of_its_number():
    files = (ROOT / "tests" / "threats").glob("test_*.py")
    found = {path.relative_to(ROOT).as_posix() for path in files}
    stated = {proof for body in THREATS.values() for proof in proofs(body)}
    assert found == stated
    for number, body in THREATS.items():
        assert all(f"/test_f{number:02}_" in proof for proof in proofs(body))


def test_every_kind_of_attack_is_at_threats_that_are_mitigated():
    found = (ROOT / "attack" / "kinds").glob("[a-z]*.py")
    assert {*ATTACKS} == {path.relative_to(ROOT).as_posix() for path in found}
    for numbers in ATTACKS.values():
        assert numbers == sorted({*numbers})
        for number in numbers:
            assert field(THREATS[number], "Status") == "mitigated."


def test_only_known_threats_are_referred_to():
    sources = [*(ROOT / "inferd").rglob("*.py"), *(ROOT / "adr").glob("*.md")]
    sources += (ROOT / name for name in ("CHANGELOG.md", "CONTRIBUTING.md"))
    referred = {
        int(number)
        for path in sources
        for number in re.findall(r"\bF-(\d+)\b", path.read_text())
    }
    assert referred <= set(THREATS)
