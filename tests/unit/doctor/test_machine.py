import platform
from importlib.metadata import PackageNotFoundError

import pytest

from inferd.doctor.check import Verdict
from inferd.doctor.machine import (
    USUAL_FLAGS,
    Limits,
    check_clock,
    check_cpu,
    check_limits,
    check_packages,
    check_python,
    reinstall_hint,
)
from inferd.memory.available import GroupLimit

VERSIONS = {
    "msgspec": "0.22.0",
    "structlog": "25.1",
    "trio": "0.35.0",
    "llama-cpp-python": "0.3.36",
    "jinja2": "3.1.6",
    "numpy": "2.4.6",
}


def test_this_python_will_do():
    finding = check_python()
    assert finding.verdict is Verdict.OK
    assert finding.detail.startswith(platform.python_version())


# --- packages ---------------------------------------------------------------------------


@pytest.fixture
def installed(monkeypatch):
    """What is installed; a test may change it."""
    versions = dict(VERSIONS)

    def version(name):
        if name not in versions:
            raise PackageNotFoundError(name)
        return versions[name]

    pins = ["trio>=0.32,<1", 'llama-cpp-python==0.3.36; extra == "llama"']
    monkeypatch.setattr("inferd.doctor.machine.version", version)
    monkeypatch.setattr("inferd.doctor.machine.requires", lambda _: pins)
    return versions


def test_packages_as_pinned_are_well(installed):
    finding = check_packages()
    assert finding.verdict is Verdict.OK
    assert "trio 0.35.0" in finding.detail
    assert "llama-cpp-python 0.3.36" in finding.detail


def test_another_binding_than_the_pinned_one_is_a_failure(installed):
    installed["llama-cpp-python"] = "0.3.37"
    finding = check_packages()
    assert finding.verdict is Verdict.FAILED
    assert finding.detail == "llama-cpp-python 0.3.37, 0.3.36 is pinned"
    assert finding.hint == "make setup"


@pytest.mark.parametrize("package", ["llama-cpp-python", "jinja2", "numpy"])
def test_without_a_model_library_there_is_no_llamacpp_backend(installed, package):
    del installed[package]
    finding = check_packages()
    assert finding.verdict is Verdict.WARNING
    assert finding.detail == f"{package} is not installed: no llamacpp backend"
    assert finding.hint == "make setup"


@pytest.mark.parametrize("pins", [None, [], ["llama-cpp-python>=0.3"]])
def test_without_a_pin_any_binding_will_do(installed, monkeypatch, pins):
    monkeypatch.setattr("inferd.doctor.machine.requires", lambda _: pins)
    assert check_packages().verdict is Verdict.OK


@pytest.mark.usefixtures("installed")
def test_a_checkout_that_is_not_installed_is_checked_but_for_versions(monkeypatch):
    def missing(name):
        raise PackageNotFoundError(name)

    monkeypatch.setattr("inferd.doctor.machine.requires", missing)
    finding = check_packages()
    assert finding.verdict is Verdict.WARNING
    assert finding.detail.startswith("inferd is not installed")


# --- processor --------------------------------------------------------------------------


@pytest.fixture
def cpu(tmp_path, monkeypatch):
    """Check a processor with these flags."""
    monkeypatch.setattr(platform, "machine", lambda: "x86_64")

    def check(flags):
        path = tmp_path / "cpuinfo"
        path.write_text(f"processor\t: 0\nflags\t\t: {' '.join(flags)}\nbugs\t: none\n")
        return check_cpu(path)

    return check


def test_a_processor_with_all_that_is_usual_is_well(cpu):
    finding = cpu(["fpu", *USUAL_FLAGS])
    assert finding.verdict is Verdict.OK
    assert finding.detail == "has avx, avx2, bmi2, f16c, fma, sse4_2"


def test_further_cpu_flags_are_listed(cpu):
    finding = cpu([*USUAL_FLAGS, "avx512f", "avx512cd", "avx_vnni", "amx_tile"])
    assert finding.verdict is Verdict.OK
    assert finding.detail == "has avx, avx2, bmi2, f16c, fma, sse4_2, avx512f, avx_vnni"


@pytest.mark.parametrize("flag", sorted(USUAL_FLAGS))
def test_a_processor_that_lacks_something_is_slow(cpu, flag):
    finding = cpu(USUAL_FLAGS - {flag})
    assert finding.verdict is Verdict.WARNING
    assert finding.detail == f"the processor lacks {flag}: decoding is slow"


def test_another_architecture_has_nothing_to_lack(cpu, monkeypatch):
    monkeypatch.setattr(platform, "machine", lambda: "aarch64")
    finding = cpu([])
    assert finding.verdict is Verdict.OK
    assert finding.detail.startswith("aarch64: ")


# --- the clock and the limits -----------------------------------------------------------

BUILT = 1_795_000_000.0


def test_a_clock_before_the_installation_is_told():
    finding = check_clock(BUILT - 2 * 86_400, BUILT)
    assert finding.verdict is Verdict.WARNING
    assert finding.hint == "sudo timedatectl set-ntp true"
    assert check_clock(BUILT - 60, BUILT).verdict is Verdict.OK
    assert check_clock(BUILT + 60, BUILT).detail == "2026-11-18 11:07 UTC"


def test_limits_that_are_wide_enough_are_listed():
    assert check_limits(Limits(), 1000).detail == (
        "open files unlimited, memory of the control group unlimited"
    )
    finding = check_limits(Limits(1000, GroupLimit("/a", 2**30)), 1000)
    assert finding.verdict is Verdict.OK
    assert finding.detail.endswith("1000, memory of the control group 1024 MiB (/a)")


def test_too_few_open_files_are_told():
    finding = check_limits(Limits(max_files=999), 1000)
    assert finding.verdict is Verdict.WARNING
    assert "1000 open files are wanted" in finding.detail
    assert finding.hint == "ulimit -Hn 1000, or lower limits.max_connections"
    unit = check_limits(Limits(max_files=999, unit="inferd.service"), 1000)
    assert r"printf '[Service]\nLimitNOFILE=1000\n' | sudo tee" in unit.hint


def test_a_control_group_that_leaves_nothing_is_told_with_the_reserve():
    group = GroupLimit("/a/b", 512 * 2**20)
    limits = Limits(memory=group, reserve=512 * 2**20)
    finding = check_limits(limits, 10)
    assert finding.verdict is Verdict.FAILED
    assert finding.detail.endswith(
        "512 MiB (/a/b); [memory] reserve keeps 512 MiB of it"
    )
    assert finding.hint.startswith("raise the limit of the control group /a/b, or")
    for name, section in (("inferd.service", "Service"), ("system.slice", "Slice")):
        group = GroupLimit(name, 512 * 2**20)
        unit = limits._replace(memory=group, unit="inferd.service")
        hint = check_limits(unit, 10).hint
        assert rf"printf '[{section}]\nMemoryMax={2 * 2**30}\n' | sudo tee" in hint
        assert f"/etc/systemd/system/{name}.d/zz-memory.conf" in hint


@pytest.mark.parametrize(
    ("prefix", "hint"),
    [
        ("/opt/inferd/releases/0-1", "sudo make install"),
        ("/usr/lib/inferd", "sudo apt install --reinstall inferd"),
        ("/x/.venv", "make setup"),
    ],
)
def test_packages_come_back_as_they_came(prefix, hint):
    assert reinstall_hint(prefix, {}) == hint
    environ = {"LLAMA_CPP_LIB_PATH": "/srv/other"}
    assert reinstall_hint(prefix, environ) == "unset LLAMA_CPP_LIB_PATH"


def test_a_package_that_the_daemon_needs_is_missing(installed):
    del installed["msgspec"]
    finding = check_packages()
    assert (finding.verdict, finding.hint) == (Verdict.FAILED, "make setup")
    assert finding.detail == "msgspec is not installed"
