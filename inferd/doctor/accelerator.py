"""Checks of an accelerator's driver and devices, by what the kernel shows of them."""

from collections.abc import Sequence
from pathlib import Path
from typing import Final, NamedTuple

from inferd.doctor.check import Finding, failed, ok, warning
from inferd.installation import service_prefix
from inferd.memory.plan import mib

NODES: Final = ("nvidia[0-9]*", "dri/renderD*", "kfd")
"""Device nodes that drivers make, below ``/dev``."""
_VRAM: Final = "class/drm/card*/device/mem_info_vram_"
GPU_DROP_IN: Final = (
    f"sudo install -D --mode=0644 {service_prefix()}/share/systemd/gpu.conf "
    "/etc/systemd/system/{unit}.d/gpu.conf; sudo systemctl daemon-reload; "
    "sudo systemctl restart {unit}"
)
"""Allows a service the devices, and the code that their drivers compile."""


class Devices(NamedTuple):
    """The accelerators of a machine, as the kernel shows them."""

    nodes: Sequence[Path]
    driver: str
    """Version of the driver; empty if it does not tell."""
    total: int
    """Bytes of device memory; 0 if the kernel does not tell."""
    used: int


def find_devices(root: Path = Path("/")) -> Devices:
    """Look for device nodes, a driver's version and device memory.

    Args:
        root: of the file system.
    """
    nodes = [path for name in NODES for path in sorted((root / "dev").glob(name))]
    sums = {
        kind: sum(map(_number, (root / "sys").glob(f"{_VRAM}{kind}")))
        for kind in ("total", "used")
    }
    driver = _text(root / "proc/driver/nvidia/version").partition("\n")[0]
    driver = driver or _text(root / "sys/module/amdgpu/version")
    return Devices(nodes, driver.strip(), sums["total"], sums["used"])


def _text(path: Path) -> str:
    try:
        return path.read_text()
    except (OSError, UnicodeDecodeError):
        return ""


def _number(path: Path) -> int:
    text = _text(path).strip()
    return int(text) if text.isdecimal() else 0


class UnitLimits(NamedTuple):
    """What the unit of a service keeps from drivers."""

    unit: str
    hides_devices: bool
    denies_generated_code: bool
    """Memory that was written cannot be executed, which ends a driver that compiles."""

    def named(self, nodes: str) -> str:
        """Say what is kept from drivers; empty if nothing is."""
        found = [
            *([f"hides {nodes} from its daemon"] if self.hides_devices else ()),
            *(
                ["denies the code that drivers compile (MemoryDenyWriteExecute=yes)"]
                if self.denies_generated_code
                else ()
            ),
        ]
        return " and ".join(found)


def check_driver(
    devices: Devices, backends: Sequence[str], limits: UnitLimits | None = None
) -> Finding:
    """Check that there is an accelerator if a backend wants one.

    Args:
        devices: of the machine.
        backends: names of those that have layers to be offloaded.
        limits: those of the service's unit, if a service is checked.
    """
    if not backends:
        return ok("no backend wants an accelerator")
    names = ", ".join(backends)
    if not devices.nodes:
        return warning(
            f"{names}: n_gpu_layers is set, and no driver has made a device",
            f"set n_gpu_layers = 0 in [[backend]] {backends[0]}, or install the driver",
        )
    found = ", ".join(str(node) for node in devices.nodes)
    if limits is not None and (kept := limits.named(found)):
        return failed(
            f"{names}: {limits.unit} {kept}", GPU_DROP_IN.format(unit=limits.unit)
        )
    detail = f"{found}; driver {devices.driver or 'unknown'}"
    if devices.total:
        free = mib(devices.total - devices.used)
        detail += f"; {free} of {mib(devices.total)} device memory free"
    return ok(detail)
