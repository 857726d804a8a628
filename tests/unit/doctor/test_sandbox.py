import pytest

from inferd.config.settings import LimitSettings
from inferd.doctor.check import Verdict
from inferd.doctor.sandbox import check_sandbox
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
