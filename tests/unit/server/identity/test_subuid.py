import os

import pytest
from hypothesis import given, strategies as st
from structlog.testing import capture_logs

from inferd.config.settings import ConfigError, UidRange, UserSettings
from inferd.limits.server import MAX_NAMES_LOOKED_UP
from inferd.server.identity import subuid
from inferd.server.identity.mapping import FIRST_SUBORDINATE, N_IDS, Identity, IdRange
from inferd.server.identity.subuid import load_identities, parse_ranges
from tests.cases import each_case

ACCOUNTS = {"alice": 1001, "bob": 1002, "docker": 997, "root": 0}


def ranges(text: str) -> list[IdRange]:
    return parse_ranges(text, ACCOUNTS.get).ranges


@each_case(
    ("line", "expected"),
    [
        ("alice:100000:65536", IdRange(100_000, 65_536, 1001)),
        ("1500:100000:65536", IdRange(100_000, 65_536, 1500)),
        ("  bob : 100000 : 10 ", IdRange(100_000, 10, 1002)),
        ("root:1000000:1000000000", IdRange(1_000_000, 10**9)),
        ("0:1000000:10", IdRange(1_000_000, 10)),
        ("docker:100000:65536", IdRange(100_000, 65_536)),
        ("gone:100000:65536", IdRange(100_000, 65_536)),
        ("65534:100000:65536", IdRange(100_000, 65_536)),
        (f"alice:0:{N_IDS}", IdRange(65_536, N_IDS - 65_536, 1001)),
        ("alice:1000:100000", IdRange(65_536, 35_464, 1001)),
    ],
)
def test_a_range_is_its_owners_if_the_owner_is_a_person(line, expected):
    assert parse_ranges(f"# a remark\n\n{line}\n", ACCOUNTS.get) == ([expected], 0)


@each_case(
    "line",
    [
        "alice",
        "alice:100000",
        "alice:100000:1:2",
        ":100000:65536",
        "alice:100000:",
        "alice:100000:-5",
        "alice:0x186a0:65536",
        "alice:1_00000:65536",
        "alice:١٠٠٠٠٠:65536",  # noqa: RUF001  # digits, but not the system's
        "alice:100000:0",
        "alice:4294967290:6",
        "alice:99999999999:1",
        "alice:0:65536",
        "alice:1001:100",
    ],
)
def test_malformed_lines_are_skipped_and_counted(line):
    assert parse_ranges(f"{line}\nbob:200000:5", ACCOUNTS.get) == (
        [IdRange(200_000, 5, 1002)],
        1,
    )


def test_only_a_newline_ends_a_line():
    assert ranges("alice\u2028bob:200000:5\x85\x0bbob:300000:5") == []


@given(st.text(alphabet="alice:0123456789\n #-\u2028", max_size=60))
def test_whatever_a_file_says_ranges_are_of_subordinate_numbers(text):
    for each in ranges(text):
        assert FIRST_SUBORDINATE <= each.first < each.end <= N_IDS


# --- files ------------------------------------------------------------------------------


@pytest.fixture
def system(tmp_path, monkeypatch):
    """Write the system's files; give the settings that name them."""

    def write(**settings) -> UserSettings:
        files = {"passwd": "", "subuid": "", "subgid": "", "nsswitch": ""} | {
            name: settings.pop(name) for name in [*settings] if name in FILES
        }
        for name, text in files.items():
            (tmp_path / name).write_text(text)
        monkeypatch.setattr(subuid, "_PASSWD", tmp_path / "passwd")
        monkeypatch.setattr(subuid, "_NSSWITCH", tmp_path / "nsswitch")
        return UserSettings(
            subuid_file=str(tmp_path / "subuid"),
            subgid_file=str(tmp_path / "subgid"),
            **settings,
        )

    return write


FILES = ("passwd", "subuid", "subgid", "nsswitch")
PASSWD = "root:x:0:0::/:/bin/sh\nalice:x:1001:1001::/:/bin/sh\nlate:x:100007:5::/:\n"


def test_ranges_of_the_files_are_loaded(system):
    known = load_identities(
        system(
            passwd=PASSWD, subuid="alice:100000:65536\n", subgid="alice:300000:65536\n"
        )
    )
    assert known.of(100_001, 5) == Identity(1001, 1001)
    assert known.of(400_001, 300_005) == Identity(1001, 1001)
    for uid in (0, os.getuid(), 100_007):
        assert known.of(uid, 300_005) == Identity(uid, uid)


def test_the_daemons_own_user_is_nobody_elses(system, monkeypatch):
    monkeypatch.setattr("os.getuid", lambda: 100_009)
    known = load_identities(system(passwd=PASSWD, subuid="alice:100000:65536\n"))
    assert known.of(100_009, 5) == Identity(100_009, 100_009)


def test_absent_files_count_as_empty(system, tmp_path):
    settings = system()
    (tmp_path / "subuid").unlink()
    (tmp_path / "passwd").unlink()
    with capture_logs() as log:
        assert load_identities(settings).of(100_001, 5) == Identity(100_001, 100_001)
    assert log == []


def test_unreadable_files_are_logged(system, tmp_path):
    settings = system(
        subgid="nonsense\nalice\n", nsswitch="passwd: files\nsubid: sss\n"
    )
    (tmp_path / "subuid").unlink()
    (tmp_path / "subuid").mkdir()
    with capture_logs() as log:
        load_identities(settings)
    assert [(each["event"], each["log_level"]) for each in log] == [
        ("subordinate_ids.elsewhere", "warning"),
        ("users.unreadable", "warning"),
        ("subordinate_ids.ignored", "warning"),
    ]
    assert log[-1]["lines"] == 2


@pytest.mark.parametrize("line", ["subid: files\n", "subid:\n", "# subid: sss\n"])
def test_the_usual_sources_are_not_logged(system, line):
    with capture_logs() as log:
        load_identities(system(nsswitch=line))
    assert log == []


def test_of_a_huge_file_whole_lines_are_read_and_no_more(system, monkeypatch):
    monkeypatch.setattr(subuid, "MAX_SUBORDINATE_BYTES", 45)
    text = "1001:100000:10\n" * 2 + "1001:200000:10000\n"
    with capture_logs() as log:
        known = load_identities(system(passwd=PASSWD, subuid=text))
    assert known.of(100_003, 5).user == 1001
    assert known.of(200_003, 5).user == 200_003
    assert [each["event"] for each in log] == ["users.too_long"]


def test_names_are_looked_up_in_the_directory_a_few_times_only(system, monkeypatch):
    asked: list[str] = []

    def getpwnam(name: str) -> object:
        asked.append(name)
        raise KeyError(name)

    monkeypatch.setattr("pwd.getpwnam", getpwnam)
    text = "".join(f"name{n}:{100_000 + n}:1\nname{n}:{n}:1\n" for n in range(500))
    load_identities(system(passwd=PASSWD, subuid="alice:900000:1\n" + text))
    assert asked == [f"name{n}" for n in range(MAX_NAMES_LOOKED_UP)]


# --- settings ---------------------------------------------------------------------------


def test_ranges_of_the_settings_are_somebodys_or_containers(system):
    settings = system(
        passwd=PASSWD,
        ranges=(
            UidRange(first=5000, count=10, owner="alice"),
            UidRange(first=6000, count=10, owner=1500),
            UidRange(first=524_288, count=4 * 65_536, block=65_536),
            UidRange(first=2_000_000, count=100),
        ),
    )
    known = load_identities(settings)
    assert known.of(5009, 5).user == 1001
    assert known.of(6009, 5).user == 1500
    assert known.of(524_288, 5) == known.of(589_823, 5) != known.of(589_824, 5)
    assert known.of(2_000_000, 5) == known.of(2_000_099, 5)
    assert known.of(2_000_100, 5).user == 2_000_100


@pytest.mark.parametrize(
    "wrong",
    [
        (UidRange(first=N_IDS - 5, count=6),),
        (UidRange(first=10, count=6, owner="no such user at all"),),
        (UidRange(first=10, count=6, owner="root"),),
        (UidRange(first=10, count=6, owner=0),),
        (UidRange(first=10, count=6, owner="alice", block=3),),
        (UidRange(first=10, count=6), UidRange(first=15, count=1)),
        (UidRange(first=10, count=6), UidRange(first=10, count=6, owner="alice")),
    ],
)
def test_ranges_that_contradict_themselves_are_refused(system, wrong):
    with pytest.raises(ConfigError, match=r"^users\.ranges: "):
        load_identities(system(passwd=PASSWD, ranges=wrong))
