"""What a BERT model in a GGUF file says, worked out once more with numpy alone.

Tokenizer and encoder follow the model's papers, not llama.cpp: accents and case go,
punctuation and Chinese characters are words of their own, the longest known piece comes
first; GELU is the exact one. Weights are those of the file, dequantised.
"""

import ctypes
import math
import unicodedata
from collections.abc import Iterable, Iterator
from functools import cached_property
from pathlib import Path
from typing import Any, Final

import gguf
import numpy as np
import numpy.typing as npt

Array = npt.NDArray[np.float64]

PHANTOM_SPACE: Final = "\N{LOWER ONE EIGHTH BLOCK}"
LONGEST_WORD: Final = 100
"""Characters; a longer word is unknown."""

CHINESE: Final = (
    *(range(0x4E00, 0xA000), range(0x3400, 0x4DC0), range(0x20000, 0x2A6E0)),
    *(range(0x2A700, 0x2B740), range(0x2B740, 0x2B820), range(0x2B820, 0x2CEB0)),
    *(range(0xF900, 0xFB00), range(0x2F800, 0x2FA20)),
)


class Reference:
    """A BERT model, slow and plain.

    Args:
        path: of the GGUF file.
    """

    def __init__(self, path: Path) -> None:
        use_one_thread()
        reader = gguf.GGUFReader(path)
        self.header: dict[str, Any] = {
            name: field.contents() for name, field in reader.fields.items()
        }
        self.weights: dict[str, Array] = {
            tensor.name: np.asarray(
                gguf.quants.dequantize(tensor.data, tensor.tensor_type), np.float64
            )
            for tensor in reader.tensors
        }

    # --- the tokenizer ------------------------------------------------------------

    @cached_property
    def vocabulary(self) -> dict[str, int]:
        """Ids of all pieces; those that begin a word have a phantom space in front."""
        tokens = self.header["tokenizer.ggml.tokens"]
        return {token: number for number, token in enumerate(tokens)}

    def tokenize(self, text: str) -> list[int]:
        """Cut a text into the ids of its pieces, without special tokens."""
        return [piece for word in words(text) for piece in self.pieces(word)]

    def pieces(self, word: str) -> list[int]:
        """Cut a word: each time the longest piece there is."""
        found = []
        rest = PHANTOM_SPACE + word
        while rest and len(word) <= LONGEST_WORD:
            shorter = (rest[:end] for end in range(len(rest), 0, -1))
            piece = next((each for each in shorter if each in self.vocabulary), "")
            if not piece:
                break
            found.append(self.vocabulary[piece])
            rest = rest[len(piece) :]
        else:
            if found:
                return found
        return [self.special("unknown")]

    def special(self, role: str) -> int:
        """Id of a special token."""
        return int(self.header[f"tokenizer.ggml.{role}_token_id"])

    # --- the encoder --------------------------------------------------------------

    def hidden(self, tokens: list[int], segments: list[int]) -> Array:
        """Encode: ``(tokens, width)``, before any pooling."""
        state = self.weights["token_embd.weight"][tokens]
        state = state + self.weights["token_types.weight"][segments]
        state = state + self.weights["position_embd.weight"][: len(tokens)]
        state = self.norm("token_embd_norm", state)
        for layer in range(self.header["bert.block_count"]):
            state = self.block(f"blk.{layer}.", state)
        return state

    def block(self, name: str, state: Array) -> Array:
        """Run one layer."""
        attended = self.linear(f"{name}attn_output", self.attention(name, state))
        state = self.norm(f"{name}attn_output_norm", state + attended)
        inner = gelu(self.linear(f"{name}ffn_up", state))
        return self.norm(
            f"{name}layer_output_norm", state + self.linear(f"{name}ffn_down", inner)
        )

    def attention(self, name: str, state: Array) -> Array:
        """Let each token look at all, head by head."""
        n_heads = self.header["bert.attention.head_count"]
        n_tokens, width = state.shape

        def heads(part: str) -> Array:
            values = self.linear(f"{name}attn_{part}", state)
            return values.reshape(n_tokens, n_heads, -1).transpose(1, 0, 2)

        scores = heads("q") @ heads("k").transpose(0, 2, 1)
        mixed = softmax(scores / math.sqrt(width / n_heads)) @ heads("v")
        return mixed.transpose(1, 0, 2).reshape(n_tokens, width)

    def linear(self, name: str, values: Array) -> Array:
        """Multiply by a matrix of ``(out, in)`` and add its bias."""
        return values @ self.weights[f"{name}.weight"].T + self.weights[f"{name}.bias"]

    def norm(self, name: str, values: Array) -> Array:
        """Bring each row to mean 0 and variance 1, then scale and shift it."""
        epsilon: float = self.header["bert.attention.layer_norm_epsilon"]
        centred = values - values.mean(-1, keepdims=True)
        deviation = np.sqrt((centred**2).mean(-1, keepdims=True) + epsilon)
        scaled = centred / deviation * self.weights[f"{name}.weight"]
        return np.asarray(scaled + self.weights[f"{name}.bias"])

    # --- what comes out -----------------------------------------------------------

    def embed(self, text: str) -> Array:
        """Pool a text's tokens as the file says, scaled to length 1: ``(width,)``."""
        tokens = [self.special("bos"), *self.tokenize(text), self.special("seperator")]
        hidden = self.hidden(tokens, [0] * len(tokens))
        pooled = {
            gguf.PoolingType.MEAN: hidden.mean(0),
            gguf.PoolingType.CLS: hidden[0],
            gguf.PoolingType.LAST: hidden[-1],
        }[self.header["bert.pooling_type"]]
        return np.asarray(pooled / np.linalg.norm(pooled))

    def score(self, query: str, document: str, *, second_segment: int = 1) -> float:
        """Judge how well a document answers a query.

        Args:
            query: the first segment, of token type 0.
            document: the second.
            second_segment: its token type: 1 in all that the model was trained with.
        """
        separator = self.special("seperator")
        first = [self.special("bos"), *self.tokenize(query), separator]
        second = [*self.tokenize(document), separator]
        segments = [0] * len(first) + [second_segment] * len(second)
        start = self.hidden(first + second, segments)[:1]
        pooled = np.tanh(self.linear("cls", start))
        return float(self.linear("cls.output", pooled)[0, 0])


def words(text: str) -> Iterator[str]:
    """Split a text into words in lower case, without accents."""
    word = ""
    for character in plain(text):
        if character.isspace() or is_alone(character):
            if word:
                yield word
            word = ""
            if not character.isspace():
                yield character
        else:
            word += character
    if word:
        yield word


def plain(text: str) -> Iterable[str]:
    """Drop control characters, accents and case."""
    for character in unicodedata.normalize("NFD", text):
        category = unicodedata.category(character)
        if character in "\t\n\r":
            yield " "
        elif category not in ("Mn", "Cc", "Cf", "Co") and character != "\ufffd":
            yield from character.lower()


def is_alone(character: str) -> bool:
    """Whether a character is a word of its own."""
    return (
        unicodedata.category(character).startswith("P")
        or (character.isascii() and not character.isalnum() and character.isprintable())
        or any(ord(character) in block for block in CHINESE)
    ) and not character.isspace()


def softmax(values: Array) -> Array:
    """Turn each row into shares of 1."""
    powers = np.exp(values - values.max(-1, keepdims=True))
    return np.asarray(powers / powers.sum(-1, keepdims=True))


def gelu(values: Array) -> Array:
    """Multiply by the normal distribution: the exact form, not the one with tanh."""
    return values * (1 + erf(values / math.sqrt(2))) / 2


def erf(values: Array) -> Array:
    """Compute the error function, to 1.5e-7 (Abramowitz and Stegun, 7.1.26)."""
    coefficients = (1.061405429, -1.453152027, 1.421413741, -0.284496736, 0.254829592)
    step = 1 / (1 + 0.3275911 * np.abs(values))
    series = np.zeros_like(values)
    for coefficient in coefficients:
        series = (series + coefficient) * step
    return np.sign(values) * (1 - series * np.exp(-(values**2)))


def use_one_thread() -> None:
    """Keep numpy's BLAS from spinning for cores that others use: ten times slower."""
    libraries = Path(np.__file__).parents[1] / "numpy.libs"
    for path in libraries.glob("libscipy_openblas64_*"):
        ctypes.CDLL(str(path)).scipy_openblas_set_num_threads64_(1)
