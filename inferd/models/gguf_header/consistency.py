"""Check that the numbers of a GGUF header do not contradict each other."""

from collections.abc import Callable, Mapping
from typing import Final

from inferd.models.gguf_header.values import Number

Numbers = Mapping[str, tuple[Number, ...]]
"""By key without the architecture's prefix: one number, or one per layer."""

HEADS: Final = "attention.head_count"
KEY_HEADS: Final = "attention.head_count_kv"
EMBEDDING_LENGTH: Final = "embedding_length"
ROPE_DIMENSIONS: Final = "rope.dimension_count"


def contradiction(numbers: Numbers) -> str | None:
    """Describe the first contradiction between numbers, if there is one."""
    for check in _CHECKS:
        if fault := check(numbers):
            return fault
    return None


def _first(numbers: Numbers, key: str) -> int | None:
    found = numbers.get(key)
    return None if found is None else int(found[0])


def _layers(numbers: Numbers) -> str | None:
    """Check that per-layer arrays have one item per layer, and layer counts are possible."""
    n_layers = _first(numbers, "block_count")
    if n_layers is None:
        return None
    for key in (HEADS, KEY_HEADS, "feed_forward_length", "expert_used_count"):
        n_items = len(numbers.get(key, (0,)))
        if n_items not in (1, n_layers):
            return f"{n_layers} layers have {n_items} numbers of {key}"
    n_predicting = _first(numbers, "nextn_predict_layers") or 0
    if n_predicting > n_layers:
        return f"{n_predicting} of {n_layers} layers predict the next tokens"
    return None


def _heads(numbers: Numbers) -> str | None:
    """Check that heads divide evenly into key heads, and the width into heads."""
    heads, key_heads = numbers.get(HEADS, (0,)), numbers.get(KEY_HEADS, (0,))
    n_pairs = max(len(heads), len(key_heads))
    for at in range(n_pairs):
        n, n_keys = (int(each[at % len(each)]) for each in (heads, key_heads))
        if n and n_keys and n % n_keys:
            return f"{n} heads cannot share {n_keys} of keys"
    width, n_heads = _first(numbers, EMBEDDING_LENGTH), int(heads[0])
    if width and n_heads and len(heads) == 1 and not _own_width(numbers):
        return f"{n_heads} heads cannot share {width}" if width % n_heads else None
    return None


def _own_width(numbers: Numbers) -> int | None:
    return _first(numbers, "attention.key_length") or _first(
        numbers, "attention.head_dim"
    )


def _rope(numbers: Numbers) -> str | None:
    """Check that RoPE rotates an even number of dimensions, at most those of a head."""
    for key in (ROPE_DIMENSIONS, "rope.dimension_count_swa"):
        if (_first(numbers, key) or 0) % 2:
            return f"{key} is odd"
    n_rotated, n_heads = _first(numbers, ROPE_DIMENSIONS), _first(numbers, HEADS)
    width = _own_width(numbers)
    if not width and n_heads:
        width = (_first(numbers, EMBEDDING_LENGTH) or 0) // n_heads
    if n_rotated and width and n_rotated > width:
        return f"{n_rotated} of a head's {width} dimensions are rotated"
    return None


def _experts(numbers: Numbers) -> str | None:
    """Check that used experts exist, and that groups of experts are of equal size."""
    n_experts = _first(numbers, "expert_count") or 0
    if n_experts <= 1:  # models without experts may have 1
        return None
    used = numbers.get("expert_used_count", (0,))
    if not 1 <= max(used) <= n_experts:
        return f"{max(used):g} of {n_experts} experts are used"
    n_groups = _first(numbers, "expert_group_count") or 0
    if n_groups > 1 and n_experts % n_groups:
        return f"{n_experts} experts cannot be in {n_groups} groups"
    n_used = _first(numbers, "expert_group_used_count") or 0
    if n_groups > 1 and not 1 <= n_used < n_groups:
        return f"{n_used} of {n_groups} groups of experts are used"
    return None


def _patches(numbers: Numbers) -> str | None:
    """Check that an image holds at least one patch."""
    side, patch = _first(numbers, "image_size"), _first(numbers, "patch_size")
    if side and patch and patch > side:
        return f"patches of {patch} pixels do not fit in images of {side}"
    return None


_CHECKS: Final[tuple[Callable[[Numbers], str | None], ...]] = (
    _layers,
    _heads,
    _rope,
    _experts,
    _patches,
)
