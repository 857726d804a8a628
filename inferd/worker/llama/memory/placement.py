"""Decide how many layers go to accelerators, and predict what serving takes then."""

from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

from msgspec.structs import replace

from inferd.config.kinds.llamacpp import LlamaCppSettings, n_gpu_layers
from inferd.memory.plan import MemoryDemand
from inferd.worker.backend import LoadError
from inferd.worker.llama.gguf.files import ModelFiles
from inferd.worker.llama.library.devices import (
    Device,
    largest_tensor_bytes,
    list_devices,
)
from inferd.worker.llama.memory.offload import (
    Need,
    Room,
    describe_need,
    fits,
    most_layers,
)
from inferd.worker.llama.memory.predict import (
    Layers,
    Prediction,
    measure_layers,
    predict,
)

WITHOUT_CACHE: Final = 1
"""Layers on accelerators of which none has a KV cache: the output layer goes there first."""


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

    n_layers = 0
    if devices:
        layers = measure_layers(files, settings, n_slots, alive)
        n_layers = _wanted_layers(settings, layers, _cache_refusal(layers, devices))
    if settings.n_gpu_layers == "auto":
        n_layers = most_layers(need, n_layers, rooms)
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


def _wanted_layers(settings: LlamaCppSettings, layers: Layers, refusal: str) -> int:
    """Return the layers that the settings want on devices, or the most with ``"auto"``.

    Raises:
        LoadError: the KV cache of a layer can be on none, though it was asked for.
    """
    most = WITHOUT_CACHE if refusal else layers.n_layers
    if settings.n_gpu_layers == "auto":
        return most
    wanted = n_gpu_layers(settings)
    n_layers = layers.n_layers if wanted < 0 else min(wanted, layers.n_layers)
    if n_layers > most:
        raise LoadError(f"n_gpu_layers = {settings.n_gpu_layers}: {refusal}")
    return n_layers


def _cache_refusal(layers: Layers, devices: Sequence[Device]) -> str:
    """Say why no device can have the KV cache of a layer; empty if all can.

    llama.cpp would end the process: it cannot move a cache once it has placed it.
    """
    limits = [(largest_tensor_bytes(each.handle), each.name) for each in devices]
    limit, name = min(limits)
    if layers.cache_tensor_bytes <= limit:
        return ""
    most = limit // (layers.row_bytes * layers.n_slots)
    slots = f" with {layers.n_slots} requests at once" if layers.n_slots > 1 else ""
    return (
        f"n_ctx = {layers.n_ctx}{slots} needs a tensor of "
        f"{layers.cache_tensor_bytes >> 20} MiB in the KV cache of a layer, and {name} "
        f"computes with {limit >> 20} MiB at most; n_ctx = {most} would do, or "
        f"n_gpu_layers = {WITHOUT_CACHE}, which leaves the cache in main memory"
    )


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
