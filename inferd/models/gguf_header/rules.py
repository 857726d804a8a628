"""Allowed ranges for the values of a GGUF file's header.

llama.cpp checks some values, aborts the process at others, and uses the rest unchecked. So
each value is compared with the range that real models have, and with the other values.
"""

from collections.abc import Iterator, Mapping
from typing import Final, NamedTuple

from inferd.limits.model_files import (
    GGUF_ARRAY_NUMBERS,
    GGUF_ARRAY_TEXTS,
    GGUF_CONTEXT_TOKENS,
    GGUF_CONTEXT_TOKENS_MIN,
    GGUF_EXPERTS,
    GGUF_HEAD_WIDTH,
    GGUF_HEADS,
    GGUF_INNER_WIDTH,
    GGUF_LAYERS,
    GGUF_WIDTH,
)
from inferd.models.gguf_header.consistency import Numbers, contradiction
from inferd.models.gguf_header.values import (
    BOOL,
    F32,
    FLOATS,
    I32,
    TEXT,
    U32,
    Number,
    Value,
)

TOKENS_KEY: Final = "tokenizer.ggml.tokens"
PROJECTOR_ARCHITECTURE: Final = "clip"

_VOCABULARY: Final = "tokenizer.ggml."
_WINDOW: Final = "attention.sliding_window"
_RECOMMENDED: Final = "general.sampling."
"""A value there that is not finite is ignored, not refused."""
_SHOWN_CHARS: Final = 80
_EPSILON_MIN: Final = 1e-15
"""Lower limit of the epsilon that avoids division by zero; models have 1e-12 at least."""


class NumberRule(NamedTuple):
    """Range and types of a number, or of the items of an array."""

    low: Number
    high: Number
    kinds: frozenset[int] = frozenset({U32})
    is_per_layer: bool = False
    """Whether an array with one number per layer is allowed, too."""

    def fault(self, value: Value) -> str | None:
        """Describe the fault of a value, if it has one."""
        return self._shape_fault(value) or self._number_fault(value)

    def _shape_fault(self, value: Value) -> str | None:
        is_array = value.n_items is not None
        if value.text is not None or (is_array and not self.is_per_layer):
            return "is not a number"
        if value.kind not in (_in_array(self.kinds) if is_array else self.kinds):
            return f"has numbers of type {value.kind}"
        if is_array and value.n_items not in range(1, GGUF_LAYERS + 1):
            return f"has {value.n_items} numbers, from 1 to {GGUF_LAYERS} are allowed"
        return None

    def _number_fault(self, value: Value) -> str | None:
        if not value.is_finite:
            return "is not finite"
        for number in (value.low, value.high):
            if not self.low <= number <= self.high:
                return f"is {number}, from {self.low} to {self.high} is allowed"
        return None


def _in_array(kinds: frozenset[int]) -> frozenset[int]:
    """Return the types that are equivalent in an array."""
    return kinds | {I32, BOOL} if U32 in kinds else kinds


def _whole(low: int, high: int) -> NumberRule:
    return NumberRule(low, high)


def _per_layer(low: int, high: int) -> NumberRule:
    return NumberRule(low, high, is_per_layer=True)


def _real(low: float, high: float) -> NumberRule:
    return NumberRule(low, high, frozenset({F32}))


MAX_TOKEN_TYPE: Final = 6
"""Byte; the types below are undefined, normal, unknown, control, user-defined, unused."""

_TYPES: Final = _whole(0, GGUF_HEADS)
_CONTEXT: Final = _whole(0, GGUF_CONTEXT_TOKENS)
_HEAD: Final = _whole(0, GGUF_HEAD_WIDTH)
_INNER: Final = _per_layer(0, GGUF_INNER_WIDTH)
_EPSILON: Final = _real(_EPSILON_MIN, 1)
_FREQUENCY: Final = _real(1e-6, 1e18)

MODEL_RULES: Final[Mapping[str, NumberRule]] = {
    "vocab_size": _whole(1, GGUF_ARRAY_TEXTS),
    "context_length": _whole(GGUF_CONTEXT_TOKENS_MIN, GGUF_CONTEXT_TOKENS),
    "embedding_length": _whole(1, GGUF_WIDTH),
    "embedding_length_out": _whole(0, GGUF_WIDTH),
    "features_length": _whole(0, GGUF_WIDTH),
    "block_count": _whole(1, GGUF_LAYERS),
    "decoder_block_count": _whole(0, GGUF_LAYERS),
    "leading_dense_block_count": _whole(0, GGUF_LAYERS),
    "nextn_predict_layers": _whole(0, GGUF_LAYERS),
    "feed_forward_length": _INNER,
    "expert_feed_forward_length": _INNER,
    "expert_shared_feed_forward_length": _INNER,
    "expert_count": _whole(0, GGUF_EXPERTS),
    "expert_used_count": _per_layer(0, GGUF_EXPERTS),
    "expert_shared_count": _whole(0, GGUF_EXPERTS),
    "expert_group_count": _whole(0, GGUF_EXPERTS),
    "expert_group_used_count": _whole(0, GGUF_EXPERTS),
    "pooling_type": _whole(0, 4),
    "classifier.pooling_type": _whole(0, 4),
    "attention.head_count": _per_layer(0, GGUF_HEADS),
    "attention.head_count_kv": _per_layer(0, GGUF_HEADS),
    "attention.key_length": _whole(1, GGUF_HEAD_WIDTH),
    "attention.value_length": _whole(1, GGUF_HEAD_WIDTH),
    "attention.key_length_mla": _HEAD,
    "attention.value_length_mla": _HEAD,
    "attention.key_length_swa": _HEAD,
    "attention.value_length_swa": _HEAD,
    "attention.layer_norm_epsilon": _EPSILON,
    "attention.layer_norm_rms_epsilon": _EPSILON,
    "attention.group_norm_epsilon": _EPSILON,
    _WINDOW: _CONTEXT,
    "attention.sliding_window_pattern": _per_layer(0, GGUF_LAYERS),
    "rope.dimension_count": _HEAD,
    "rope.dimension_count_swa": _HEAD,
    "rope.dimension_sections": _per_layer(0, GGUF_HEAD_WIDTH),
    "rope.freq_base": _FREQUENCY,
    "rope.freq_base_swa": _FREQUENCY,
    "rope.scale_linear": _real(0, 1e9),
    "rope.scaling.factor": _real(0, 1e9),
    "rope.scaling.original_context_length": _CONTEXT,
    "ssm.conv_kernel": _whole(0, GGUF_HEADS),
    "ssm.inner_size": _whole(0, GGUF_WIDTH),
    "ssm.state_size": _HEAD,
    "ssm.time_step_rank": _whole(1, GGUF_WIDTH),
    "ssm.group_count": _whole(0, GGUF_HEADS),
    "shortconv.l_cache": _whole(1, GGUF_HEADS),
    "wkv.head_size": _whole(1, GGUF_HEAD_WIDTH),
    "kda.head_dim": _HEAD,
}
"""Rules for keys that begin with the architecture, with the types that llama.cpp reads."""

PROJECTOR_RULES: Final[Mapping[str, NumberRule]] = {
    "embedding_length": _whole(0, GGUF_WIDTH),
    "feed_forward_length": _whole(0, GGUF_INNER_WIDTH),
    "block_count": _whole(0, GGUF_LAYERS),
    "projection_dim": _whole(0, GGUF_WIDTH),
    "attention.head_count": _whole(0, GGUF_HEADS),
    "attention.head_count_kv": _whole(0, GGUF_HEADS),
    "attention.head_dim": _HEAD,
    "attention.layer_norm_epsilon": _real(0, 1),
    "image_size": _whole(1, 2**15),
    "patch_size": _whole(1, 2**12),
    "image_std": NumberRule(1e-6, 1e6, frozenset({F32}), is_per_layer=True),
    "image_mean": NumberRule(-1e6, 1e6, frozenset({F32}), is_per_layer=True),
    "num_mel_bins": _whole(1, GGUF_HEADS),
    "projector.scale_factor": _whole(1, GGUF_HEADS),
    "projector.stack_factor": _whole(1, GGUF_HEADS),
    "spatial_merge_size": _whole(1, GGUF_HEADS),
}
"""Rules for keys that begin with ``clip.vision`` or ``clip.audio``."""

SLIDING_WINDOW_ARCHITECTURES: Final = frozenset(
    {"cohere2", "gemma-embedding", "gemma2", "gemma3n", "gemma4", "gpt-oss"}
)
"""Architectures with sliding-window layers, which see nothing with a window of 0. For other
architectures 0 means that there is no window."""

ROPE_SCALINGS: Final = (b"none", b"linear", b"yarn", b"longrope")


def fault_of(architecture: str, values: Mapping[str, Value]) -> str | None:
    """Describe the first fault in the values of a header, if there is one.

    Args:
        architecture: the prefix of the keys about the model.
        values: all values by key.
    """
    return next(_faults(architecture, values), None)


def _faults(architecture: str, values: Mapping[str, Value]) -> Iterator[str]:
    n_tokens = _n_tokens(architecture, values)
    for key, value in values.items():
        if fault := _fault(key, architecture, value, n_tokens):
            yield f"its {key[:_SHOWN_CHARS]!a} {fault}"
    for begin in _parts(architecture):
        numbers: Numbers = {
            key.removeprefix(begin): value.items
            for key, value in values.items()
            if key.startswith(begin) and value.items
        }
        if fault := contradiction(numbers):
            yield f"{fault}, by its keys under {begin[:-1]!a}"


def _parts(architecture: str) -> tuple[str, ...]:
    """Return the key prefixes whose numbers are checked together."""
    is_projector = architecture == PROJECTOR_ARCHITECTURE
    return ("clip.vision.", "clip.audio.") if is_projector else (f"{architecture}.",)


def _n_tokens(architecture: str, values: Mapping[str, Value]) -> int:
    """Return the size of the vocabulary, which may be declared without any texts."""
    if (tokens := values.get(TOKENS_KEY)) is not None:
        return tokens.n_items or 0
    size = values.get(f"{architecture}.vocab_size")
    return int(size.low) if size is not None and size.is_number else 0


def _fault(key: str, architecture: str, value: Value, n_tokens: int) -> str | None:
    if key.startswith(_VOCABULARY):
        if fault := _vocabulary_fault(key.removeprefix(_VOCABULARY), value, n_tokens):
            return fault
    elif not value.is_finite and not key.startswith(_RECOMMENDED):
        return "is not finite"
    if key.endswith(("token_id", "token_ids")) or ".token_ids_" in key:
        return _token_fault(value, n_tokens)
    for begin in _parts(architecture):
        if key.startswith(begin):
            return _model_fault(key.removeprefix(begin), architecture, value)
    return None


def _model_fault(name: str, architecture: str, value: Value) -> str | None:
    if name == "rope.scaling.type":
        return None if value.text in ROPE_SCALINGS else "is of an unknown kind"
    rules = PROJECTOR_RULES if architecture == PROJECTOR_ARCHITECTURE else MODEL_RULES
    if name == _WINDOW and architecture in SLIDING_WINDOW_ARCHITECTURES:
        rules = {_WINDOW: _whole(1, GGUF_CONTEXT_TOKENS)}
    rule = rules.get(name)
    return _unknown_fault(value) if rule is None else rule.fault(value)


def _unknown_fault(value: Value) -> str | None:
    """Describe the fault of a value without a rule; finiteness is checked elsewhere."""
    if value.n_items is not None:
        is_long = value.kind != TEXT and value.n_items > GGUF_ARRAY_NUMBERS
        return f"has {value.n_items} numbers, over {GGUF_ARRAY_NUMBERS}" * is_long
    if (
        value.is_number
        and value.kind not in FLOATS
        and value.high > GGUF_CONTEXT_TOKENS
    ):
        return f"is {value.high}, over {GGUF_CONTEXT_TOKENS}"
    return None


def _token_fault(value: Value, n_tokens: int) -> str | None:
    if value.text is not None or value.kind in FLOATS | {TEXT, BOOL}:
        return "is not a token"
    is_empty = value.n_items == 0
    if is_empty or 0 <= value.low <= value.high < n_tokens:
        return None
    wrong = value.low if value.low < 0 else value.high
    return f"names the token {wrong} of a vocabulary of {n_tokens}"


def _vocabulary_fault(name: str, value: Value, n_tokens: int) -> str | None:
    if name in ("tokens", "merges"):
        is_texts = value.n_items is not None and value.kind == TEXT
        return None if is_texts else "is not an array of texts"
    if name == "scores":
        return _list_fault(value, n_tokens, (F32, I32))
    if name == "token_type":
        return _list_fault(value, n_tokens, (I32,)) or _type_fault(value)
    if name == "suppress_tokens":
        return _token_fault(value, n_tokens)
    return _TYPES.fault(value) if name == "token_type_count" else None


def _type_fault(value: Value) -> str | None:
    is_known = not value.n_items or 0 <= value.low <= value.high <= MAX_TOKEN_TYPE
    return None if is_known else "has unknown types"


def _list_fault(value: Value, n_tokens: int, kinds: tuple[int, ...]) -> str | None:
    if value.n_items is None or value.kind not in kinds:
        return "is not an array of numbers of its type"
    if value.n_items != n_tokens:
        return f"has {value.n_items} numbers for a vocabulary of {n_tokens}"
    return None if value.is_finite else "is not finite"
