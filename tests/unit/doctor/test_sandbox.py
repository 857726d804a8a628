import pytest

from inferd.config.settings import LimitSettings
from inferd.doctor.check import Verdict
from inferd.doctor.sandbox import (
    check_sandbox,
    check_sandbox_in_force,
    landlock_hint,
    last_sandbox_event,
)
from inferd.ipc.worker import SandboxReport

LIMITS = LimitSettings(load_silence_s=20)


@pytest.mark.slow
def test_a_worker_reports_its_sandbox():
    finding = check_sandbox(LIMITS)
    assert finding.verdict in (Verdict.OK, Verdict.WARNING)
    assert finding.detail.startswith("landlock ")
    assert "seccomp " in finding.detail


@pytest.mark.slow
def test_a_worker_that_does_not_start_is_a_failure(monkeypatch):
    monkeypatch.setattr("inferd.engine.supervisor.spawn.sys.executable", "/bin/false")
    assert check_sandbox(LIMITS).verdict is Verdict.FAILED


@pytest.mark.slow
def test_a_process_that_reads_lines_and_does_not_start_is_a_failure(monkeypatch):
    async def enter(_limits):
        return SandboxReport(landlock=7, seccomp=True)

    monkeypatch.setattr("inferd.doctor.sandbox._enter", enter)
    for program in ("/bin/false", "/bin/cat"):
        monkeypatch.setattr("inferd.engine.supervisor.spawn.sys.executable", program)
        finding = check_sandbox(LIMITS)
        assert finding.verdict is Verdict.FAILED
        assert "large lines" in finding.detail


@pytest.mark.parametrize(
    ("boxed", "verdict", "detail"),
    [
        (
            SandboxReport(landlock=7, seccomp=True),
            Verdict.OK,
            "landlock ABI 7, seccomp yes",
        ),
        (SandboxReport(landlock=1), Verdict.WARNING, "landlock ABI 1, seccomp no"),
        (
            SandboxReport(landlock=1, missing=("seccomp: refused", "and more")),
            Verdict.WARNING,
            "landlock ABI 1, seccomp no: a worker can do more than it needs to; seccomp:",
        ),
        (SandboxReport(seccomp=True), Verdict.WARNING, "landlock no, seccomp yes"),
    ],
)
def test_what_the_kernel_lacks_is_a_warning(boxed, verdict, detail, monkeypatch):
    async def enter(_limits):
        return boxed

    monkeypatch.setattr("inferd.doctor.sandbox._enter", enter)
    monkeypatch.setattr("inferd.doctor.sandbox._enter_decoder", enter)
    finding = check_sandbox(LIMITS)
    assert finding.verdict is verdict
    assert finding.detail.startswith(detail)
    assert finding.detail.count("seccomp: refused") <= 1


def test_what_one_process_alone_lacks_is_a_warning_of_it(monkeypatch):
    async def whole(_limits):
        return SandboxReport(landlock=7, seccomp=True)

    async def part(_limits):
        return SandboxReport(landlock=7, missing=("seccomp: refused",))

    monkeypatch.setattr("inferd.doctor.sandbox._enter", whole)
    monkeypatch.setattr("inferd.doctor.sandbox._enter_decoder", part)
    finding = check_sandbox(LIMITS)
    assert finding.verdict is Verdict.WARNING
    assert finding.detail.endswith(
        "the decoder of large lines can do more than it needs to; seccomp: refused"
    )


LINE = (
    b'{"t":"x","level":"info","component":"daemon","msg":"worker.boxed","backend":"a",'
    b'"landlock":7,"seccomp":true,"is_open":%s,"missing":[%s]}\n'
)


def event_of(short_dir, *lines):
    log = short_dir / "inferd.ndjson"
    log.write_bytes(b"".join(lines))
    return last_sandbox_event(log)


def test_the_sandbox_of_a_service_is_that_of_the_last_worker(short_dir):
    event = event_of(short_dir, LINE % (b"false", b'"gap"'), LINE % (b"false", b""))
    finding = check_sandbox_in_force(event, "hint")
    assert (finding.verdict, finding.detail) == (
        Verdict.OK,
        "landlock ABI 7, seccomp yes in force",
    )


def test_what_the_sandbox_of_a_service_lacks_is_told(short_dir):
    event = event_of(short_dir, b'boxed"}\n', LINE % (b"false", b'"a gap"'), b"cut wor")
    finding = check_sandbox_in_force(event, "set it aside")
    assert (finding.verdict, finding.hint) == (Verdict.WARNING, "set it aside")
    assert finding.detail.endswith("can do more than it needs to: a gap")


def test_a_sandbox_that_is_meant_to_be_open_is_well(short_dir):
    event = event_of(short_dir, LINE % (b"true", b'"devices"'))
    assert check_sandbox_in_force(event, "").verdict is Verdict.OK


def test_without_a_log_the_sandbox_of_a_service_is_unknown(short_dir):
    assert last_sandbox_event(short_dir / "missing") is None
    assert check_sandbox_in_force(None, "").verdict is Verdict.OK


@pytest.mark.parametrize(
    ("modules", "hint"),
    [
        ("lockdown,yama\n", "start the kernel with lsm=landlock,lockdown,yama, which"),
        ("lockdown,landlock,yama\n", "the kernel has Landlock: let the system call"),
        (None, "Landlock needs Linux 5.13 or later"),
    ],
)
def test_where_landlock_is_missing_the_hint_says_what_to_change(
    short_dir, modules, hint
):
    path = short_dir / "lsm"
    if modules is not None:
        path.write_text(modules)
    assert landlock_hint(path).startswith(hint)
