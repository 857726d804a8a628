"""What fills the Debian package, without building it."""

import os
import re
import subprocess
from pathlib import Path

import pytest

from inferd import __version__
from tools.debian import __main__ as building, environment
from tools.packages import ROOT


def test_the_version_of_the_package_is_that_of_the_program():
    shown = subprocess.run(
        ["dpkg-parsechangelog", "--show-field", "Version"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    assert shown.stdout.strip() == __version__
    assert (
        f"./inferd_{__version__}_amd64.deb" in (ROOT / "docs/packages.md").read_text()
    )


def test_units_have_the_command_of_the_package_and_wait_for_its_replacement(tmp_path):
    environment.place_units(ROOT / "systemd", tmp_path)
    units = tmp_path / environment.UNITS
    for name in environment.WAITING:
        text = (units / name).read_text()
        assert "ExecStart=/usr/lib/inferd/bin/inferd " in text
        assert (
            "ExecStartPre=/usr/lib/inferd/wait-"
            in (units / f"{name}.d" / "upgrade.conf").read_text()
        )
    everything = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert not [path for path in everything if b"/opt/inferd" in path.read_bytes()]
    assert {path.name for path in (ROOT / "systemd").glob("*.so*")} <= {
        path.name for path in units.iterdir()
    }


def test_the_package_has_the_drop_ins_that_the_documents_copy_out_of_it(tmp_path):
    environment.place_units(ROOT / "systemd", tmp_path)
    shared = "/usr/lib/inferd/share/systemd"
    drop_ins = {
        f"{shared}/{path.relative_to(ROOT / 'systemd')}"
        for path in (ROOT / "systemd").rglob("*.conf")
    }
    found = {f"/{path.relative_to(tmp_path)}" for path in tmp_path.rglob("*.conf")}
    assert drop_ins <= found
    texts = [
        (ROOT / "docs" / name).read_text() for name in ("remotes.md", "service.md")
    ]
    named = set(re.findall(rf"{shared}/[a-z/-]+\.conf", "".join(texts)))
    assert {f"{shared}/remote.conf", f"{shared}/user/remote.conf"} <= named <= drop_ins


def test_metadata_forgets_where_a_package_was_built(tmp_path):
    metadata = tmp_path / "inferd-1.dist-info"
    metadata.mkdir()
    (metadata / "direct_url.json").write_text("{}")
    (metadata / "RECORD").write_text(
        "../../../bin/inferd,sha256=x,1\n"
        "inferd/__init__.py,sha256=y,2\n"
        "inferd-1.dist-info/direct_url.json,sha256=z,3\n"
    )
    environment.forget_build(metadata)
    assert (metadata / "RECORD").read_text() == "inferd/__init__.py,sha256=y,2\n"
    assert not (metadata / "direct_url.json").exists()


def test_a_package_is_built_anew_if_anything_that_it_follows_from_differs(
    tmp_path, monkeypatch
):
    monkeypatch.setattr(building, "ROOT", tmp_path)
    monkeypatch.setattr(building, "SOURCES", ("inferd",))
    file = tmp_path / "inferd" / "a.py"
    file.parent.mkdir()
    keys = set()
    for text in ("one", "two"):
        file.write_text(text)
        keys |= {building.key(""), building.key("-Znone")}
    file.chmod(0o755)
    assert len(keys | {building.key("")}) == 5


@pytest.mark.parametrize("script", ["preinst", "postinst", "prerm", "postrm"])
def test_scripts_of_the_package_have_no_error_of_syntax(script: str):
    path: Path = ROOT / "debian" / f"inferd.{script}"
    subprocess.run(["sh", "-n", path], check=True)


def test_the_newest_builds_stay_in_the_cache(tmp_path):
    for number in range(4):
        (tmp_path / f"b{number}").mkdir()
        (tmp_path / f"b{number}.log").touch()
        os.utime(tmp_path / f"b{number}.log", (number, number))
    building.prune(tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        *("b2", "b2.log", "b3", "b3.log"),
    ]
