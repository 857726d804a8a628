"""Bounds of the memory of accelerators."""

from typing import Final

MAX_DEVICES: Final = 16
"""Accelerators that one backend uses: llama.cpp's own bound."""

DEVICE_RESERVE_BYTES: Final = 512 * 1024 * 1024
"""Bytes of each device's free memory that ``n_gpu_layers = "auto"`` leaves: compiled kernels,
the driver's own memory and fragmentation. llama.cpp's ``--fit`` leaves 1 GiB, which is too
much of a small device."""

MAX_SPLIT: Final = 1_000_000.0
"""Largest part in ``tensor_split``; only ratios matter."""
