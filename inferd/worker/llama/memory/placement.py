"""Decide how many layers go to accelerators, and predict what serving takes then."""

from collections.abc import Callable
from typing import NamedTuple

from msgspec.structs import replace

from inferd.config.kinds.llamacpp import LlamaCppSettings, n_gpu_layers
from inferd.memory.plan import MemoryDemand
from inferd.worker.backend import LoadError
from inferd.worker.llama.gguf.files import ModelFiles
from inferd.worker.llama.library.devices import Device, list_devices
from inferd.worker.llama.memory.offload import (
    Need,
    Room,
    describe_need,
    fits,
    most_layers,
)
from inferd.worker.llama.memory.predict import Prediction, count_layers, predict


class Placement(NamedTuple):
    """What a worker loads."""

    settings: LlamaCppSettings
    """With a number of layers on accelerators."""
    demand: MemoryDemand


def place_layers(
    files: ModelFiles,
    settings: LlamaCppSettings,
    n_slots: int,
    alive: Callable[[], None],
) -> Placement:
    """Fit ``n_gpu_layers = "auto"`` to the free memory of devices; check a number against it.

    Args:
        files: the files that the settings name.
        settings: as configured.
        n_slots: jobs that run at once.
        alive: called regularly as a sign of life.

    Raises:
        LoadError: the model cannot be served with these settings.
    """
    devices = _used_devices(settings)
    rooms = [Room(each.handle, each.name, each.free_bytes) for each in devices]

    def predicted(n_layers: int) -> Prediction:
        placed = replace(settings, n_gpu_layers=n_layers)
        return predict(files, placed, n_slots, alive)

    def need(n_layers: int) -> Need:
        return predicted(n_layers).devices

    n_all = count_layers(files, settings, alive) if devices else 0
    if settings.n_gpu_layers == "auto":
        n_layers = most_layers(need, n_all, rooms)
    else:
        wanted = n_gpu_layers(settings)
        n_layers = n_all if wanted < 0 else min(wanted, n_all)
    if settings.require_accelerator and not n_layers:
        raise LoadError(
            "require_accelerator: no layer fits on an accelerator: "
            f"{describe_need(need(1), rooms)}; a smaller n_ctx or model may fit"
        )
    prediction = predicted(n_layers)
    if n_layers and not fits(prediction.devices, rooms, reserve_bytes=0):
        most = most_layers(need, n_layers, rooms)
        raise LoadError(
            f"n_gpu_layers = {settings.n_gpu_layers}: {n_layers} layers do not fit: "
            f"{describe_need(prediction.devices, rooms)}; {most} would, as "
            'n_gpu_layers = "auto" uses'
        )
    return Placement(replace(settings, n_gpu_layers=n_layers), prediction.demand)


def _used_devices(settings: LlamaCppSettings) -> list[Device]:
    """Return the devices that the settings use.

    Raises:
        LoadError: there is none, though the settings need one.
    """
    if not settings.n_gpu_layers:
        return []
    devices, only = list_devices(), settings.main_gpu
    if not devices and (
        settings.require_accelerator or settings.n_gpu_layers != "auto"
    ):
        key = (
            "require_accelerator"
            if settings.require_accelerator
            else f"n_gpu_layers = {settings.n_gpu_layers}"
        )
        raise LoadError(
            f"{key}: no accelerator: this build of llama.cpp has none, or its driver "
            'finds no device; n_gpu_layers = 0 and "auto" use the processor'
        )
    if only is None or not devices:
        return devices
    if only >= len(devices):
        names = ", ".join(
            f"{index} ({each.description})" for index, each in enumerate(devices)
        )
        raise LoadError(f"main_gpu = {only}: there is no such device, but {names}")
    return [devices[only]]
