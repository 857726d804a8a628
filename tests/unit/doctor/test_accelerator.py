import pytest

from inferd.doctor.accelerator import UnitLimits, check_driver, find_devices
from inferd.doctor.check import Verdict


@pytest.fixture
def machine(tmp_path):
    """The root of a machine with an accelerator."""
    (tmp_path / "dev" / "dri").mkdir(parents=True)
    (tmp_path / "dev" / "dri" / "renderD128").touch()
    device = tmp_path / "sys" / "class" / "drm" / "card0" / "device"
    device.mkdir(parents=True)
    (device / "mem_info_vram_total").write_text(f"{8 * 2**30}\n")
    (device / "mem_info_vram_used").write_text(f"{2 * 2**30}\n")
    (tmp_path / "sys/module/amdgpu").mkdir(parents=True)
    (tmp_path / "sys/module/amdgpu/version").write_text("6.1\n")
    return tmp_path


def test_an_accelerator_that_nobody_wants_is_not_looked_for(tmp_path):
    assert check_driver(find_devices(tmp_path), []).verdict is Verdict.OK


def test_a_backend_without_a_device_is_told(tmp_path):
    finding = check_driver(find_devices(tmp_path), ["chat"])
    assert finding.verdict is Verdict.WARNING
    assert finding.hint.startswith("set n_gpu_layers = 0 in [[backend]] chat, or")


def test_driver_and_device_memory_are_told(machine):
    finding = check_driver(find_devices(machine), ["chat"])
    assert finding.verdict is Verdict.OK
    assert finding.detail.endswith(
        "renderD128; driver 6.1; 6144 MiB of 8192 MiB device memory free"
    )


@pytest.mark.parametrize(
    ("limits", "told"),
    [
        ((True, False), ["hides"]),
        ((False, True), ["MemoryDenyWriteExecute"]),
        ((True, True), ["hides", "MemoryDenyWriteExecute"]),
    ],
)
def test_what_a_unit_keeps_from_drivers_is_told_with_its_drop_in(machine, limits, told):
    unit = UnitLimits("inferd@b.service", *limits)
    finding = check_driver(find_devices(machine), ["chat"], unit)
    assert finding.verdict is Verdict.FAILED
    assert [
        word for word in ("hides", "MemoryDenyWriteExecute") if word in finding.detail
    ] == told
    assert "/etc/systemd/system/inferd@b.service.d/gpu.conf" in finding.hint


def test_a_unit_that_keeps_nothing_from_drivers_is_well(machine):
    unit = UnitLimits(
        "inferd.service", hides_devices=False, denies_generated_code=False
    )
    assert check_driver(find_devices(machine), ["chat"], unit).verdict is Verdict.OK


def test_device_memory_that_the_kernel_does_not_tell_is_left_out(machine):
    (machine / "sys/class/drm/card0/device/mem_info_vram_total").unlink()
    (machine / "sys/module/amdgpu/version").unlink()
    finding = check_driver(find_devices(machine), ["chat"])
    assert finding.detail.endswith("renderD128; driver unknown")
