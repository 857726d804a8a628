"""The facts of a model in GGUF files."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from itertools import chain
from typing import Final, Literal

from inferd.limits.model_files import SHOWN_TEMPLATE_BYTES, SHOWN_TEXT_BYTES
from inferd.models.facts.file_types import quantisation
from inferd.models.facts.model import ModelFacts, Use
from inferd.models.ggml_types import NAMES
from inferd.models.gguf_header.header import GgufContents, Tensor
from inferd.models.gguf_header.rules import PROJECTOR_ARCHITECTURE
from inferd.models.gguf_header.values import Value

TEMPLATE_KEY: Final = "tokenizer.chat_template"
RANK_POOLING: Final = 4
"""``LLAMA_POOLING_TYPE_RANK``: a score instead of a vector."""

KEPT_TEXTS: Final = {
    "general.name": SHOWN_TEXT_BYTES,
    "general.license": SHOWN_TEXT_BYTES,
    "general.license.name": SHOWN_TEXT_BYTES,
    TEMPLATE_KEY: SHOWN_TEMPLATE_BYTES,
}
"""Texts of a header that are read, with the most bytes of each."""

_EMBEDDING: Final = b"token_embd.weight"
_OUTPUT: Final = b"output.weight"
_EXPERTS: Final = b"_exps."


def use_of(pooling: int, *, is_causal: bool) -> Literal["generate", "embed", "rerank"]:
    """Derive a model's use from its pooling, which yields an embedding or a score.

    Args:
        pooling: as llama.cpp numbers kinds of pooling; 0 for none.
        is_causal: whether a token attends to those before it alone.
    """
    if pooling == RANK_POOLING:
        return "rerank"
    return "generate" if is_causal and not pooling else "embed"


def gguf_facts(parts: Sequence[GgufContents]) -> ModelFacts:
    """Gather the facts of a model.

    Args:
        parts: what the headers of its files say, the first file's first; with the texts
            of ``KEPT_TEXTS``.
    """
    header, values, _ = parts[0]
    tensors = [*chain.from_iterable(part.tensors for part in parts)]
    numbers = _Numbers(header.architecture.decode("utf-8", "replace"), values)
    types = _tensor_types(tensors)
    use = numbers.use()
    return ModelFacts(
        format="GGUF",
        kind="llamacpp",
        use=use,
        name=_text(values, "general.name"),
        architecture=numbers.architecture,
        n_parameters=sum(tensor.n_items for tensor in tensors),
        n_bytes=sum(tensor.n_bytes for tensor in tensors),
        quantisation=quantisation(_number(values, "general.file_type"), types),
        tensor_types=types,
        n_ctx=numbers.of_model("context_length"),
        n_layers=numbers.of_model("block_count"),
        n_embd=numbers.of_model("embedding_length"),
        n_vocab=header.n_tokens or numbers.of_model("vocab_size"),
        n_experts=numbers.of_model("expert_count"),
        n_experts_used=numbers.of_model("expert_used_count"),
        license=_text(values, "general.license.name")
        or _text(values, "general.license"),
        n_parts=len(parts),
        token_bytes=_token_bytes(tensors, numbers) if use == "generate" else 0,
    )


def chat_template(contents: GgufContents) -> str:
    """Return the chat template of a model; empty without one, or if it is too long."""
    return _text(contents.values, TEMPLATE_KEY)


class _Numbers:
    """The numbers of a header."""

    def __init__(self, architecture: str, values: Mapping[str, Value]) -> None:
        self.architecture = architecture
        self._values = values

    def of_model(self, name: str) -> int:
        """Return a number about the model, the first layer's if each has one; else 0."""
        return _number(self._values, f"{self.architecture}.{name}") or 0

    def use(self) -> Use:
        if self.architecture == PROJECTOR_ARCHITECTURE:
            return "project"
        causal = _number(self._values, f"{self.architecture}.attention.causal")
        return use_of(self.of_model("pooling_type"), is_causal=causal != 0)


def _number(values: Mapping[str, Value], key: str) -> int | None:
    value = values.get(key)
    if value is None or not value.items or not value.is_finite:
        return None
    return int(value.items[0])


def _text(values: Mapping[str, Value], key: str) -> str:
    value = values.get(key)
    return (value.text or b"").decode("utf-8", "replace") if value else ""


def _tensor_types(tensors: Iterable[Tensor]) -> dict[str, int]:
    counter: Counter[str] = Counter()
    for tensor in tensors:
        counter[NAMES[tensor.kind]] += tensor.n_bytes
    return dict(counter.most_common())


def _token_bytes(tensors: Sequence[Tensor], numbers: _Numbers) -> int:
    """Add up the weights that are read for a token.

    Of the token embeddings that is one row, unless they are the output layer as well; of
    experts, as many as are used.
    """
    has_output = any(tensor.name == _OUTPUT for tensor in tensors)
    n_experts = max(1, numbers.of_model("expert_count"))
    n_used = min(numbers.of_model("expert_used_count") or n_experts, n_experts)
    total = 0
    for tensor in tensors:
        if tensor.name == _EMBEDDING and has_output:
            continue
        is_of_experts = _EXPERTS in tensor.name
        total += (
            tensor.n_bytes * n_used // n_experts if is_of_experts else tensor.n_bytes
        )
    return total
