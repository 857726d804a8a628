"""How many layers of a model fit into the free memory of devices."""

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from inferd.limits.accelerator import DEVICE_RESERVE_BYTES

Need = Mapping[int, int]
"""Bytes by device, whose keys are their handles."""


class Room(NamedTuple):
    """A device, and its free memory."""

    handle: int
    name: str
    free_bytes: int


def fits(
    need: Need, rooms: Sequence[Room], *, reserve_bytes: int = DEVICE_RESERVE_BYTES
) -> bool:
    """Tell whether what is needed of each device is free there.

    What is needed of a device that is not listed does not fit.

    Args:
        need: bytes by device.
        rooms: the devices.
        reserve_bytes: free bytes of each device that do not count.
    """
    free = {each.handle: each.free_bytes for each in rooms}
    return all(
        n_bytes <= free.get(handle, 0) - reserve_bytes
        for handle, n_bytes in need.items()
        if n_bytes
    )


def most_layers(
    need: Callable[[int], Need], n_layers: int, rooms: Sequence[Room]
) -> int:
    """Find the most layers on the devices that fit; 0 if not even one does.

    The need grows with the layers, so this is a binary search.

    Args:
        need: predicts the bytes on each device with a number of layers on them; called
            O(log n_layers) times, as each call takes a tenth of a second or more.
        n_layers: of the model.
        rooms: the devices.
    """
    least, most = 0, n_layers  # ``least`` fits
    while least < most:
        middle = (least + most + 1) // 2
        if fits(need(middle), rooms):
            least = middle
        else:
            most = middle - 1
    return least


def describe_need(need: Need, rooms: Sequence[Room]) -> str:
    """Describe what is needed of each device and what is free, in MiB."""
    return ", ".join(
        f"{each.name} has {each.free_bytes >> 20} MiB free, "
        f"{need.get(each.handle, 0) >> 20} needed"
        for each in rooms
    )
