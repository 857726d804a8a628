"""A speech model that was never trained: it says its piece, whatever it hears.

It is a chain. Each token of the script has a dimension of its own, and the one block of
the decoder turns a token's dimension into that of the next. So every window of thirty
seconds becomes two segments, at fixed times, in milliseconds of computing.

In English alone the script begins behind the start of a transcript. The model of many
languages takes all sound for German, and has another script for a translation.
"""

import itertools
from pathlib import Path
from typing import Final

import numpy as np

from inferd.models.convert.ctranslate2 import Array
from inferd.models.convert.whisper import Whisper, write_whisper

SEGMENTS: Final = ((0, 2000, " one two three"), (2020, 4000, " four five"))
"""What each window becomes: beginning and end in milliseconds, and text."""
TRANSLATED: Final = ((40, 3000, " drei"),)
"""And if it is asked to translate, which only one of many languages is."""
LANGUAGE: Final = "de"
"""What the model of many languages takes for spoken."""

WORDS: Final = ("one", "two", "three", "four", "five", "drei")
N_WIDTH: Final = 32
N_MELS: Final = 80
N_AUDIO_CTX: Final = 1500
N_TEXT_CTX: Final = 448
N_ENGLISH: Final = 51864
N_FEED_FORWARD: Final = 4 * N_WIDTH
STEP_MS: Final = 20
"""Between two tokens of time."""
SURE: Final = 40.0
"""How far the next token's dimension stands out."""
CERTAIN: Final = 8.0
"""Factor of the scores: whisper.cpp decodes again what is not probable enough."""


def write_tiny_whisper(
    path: Path, *, is_multilingual: bool = False, end_ms: int = SEGMENTS[-1][1]
) -> Path:
    """Write the model; give its path.

    Args:
        path: to write to.
        is_multilingual: whether it knows another language.
        end_ms: end of the second segment, up to which a window is heard at once.
    """
    vocabulary = [chr(code) for code in range(33, 127)]
    vocabulary += ["\u0120", *(f"\u0120{word}" for word in WORDS)]
    vocabulary += [f"unused{number}" for number in range(N_ENGLISH)]
    first = vocabulary.index("\u0120one")
    chain = chain_of(first, is_multilingual=is_multilingual, end_ms=end_ms)
    n_vocab = N_ENGLISH + is_multilingual
    write_whisper(path, Whisper(tensors_of(chain, n_vocab), vocabulary))
    return path


def chain_of(first: int, *, is_multilingual: bool, end_ms: int) -> dict[int, int]:
    """Say which token follows which.

    Args:
        first: the first word's token.
        is_multilingual: whether tokens of languages and tasks come first.
        end_ms: of the second segment.
    """
    end = 50256 + is_multilingual
    start, translate, transcribe, zero = end + 1, end + 101, end + 102, end + 107

    def at(milliseconds: int) -> int:
        return zero + milliseconds // STEP_MS

    one, two, three, four, five, drei = range(first, first + len(WORDS))
    script = [at(0), one, two, three, at(2000), at(2020), four, five, at(end_ms), end]
    if not is_multilingual:
        return chained([start, *script])
    german = start + 3  # after English and Chinese
    # The two scripts begin at different times: a token has one that follows it.
    other = [translate, at(40), drei, at(3000), end]
    return chained([start, german]) | chained([transcribe, *script]) | chained(other)


def chained(tokens: list[int]) -> dict[int, int]:
    return dict(itertools.pairwise(tokens))


def tensors_of(chain: dict[int, int], n_vocab: int) -> dict[str, Array]:
    """Make the tensors: all that is not the chain is zero, or ones in norms."""
    tokens = sorted({*chain, *chain.values()})
    dimension = {token: number for number, token in enumerate(tokens)}
    embeddings = np.zeros((n_vocab, N_WIDTH), np.float32)
    for token, number in dimension.items():
        embeddings[token, number] = 1
    step_in = np.zeros((N_FEED_FORWARD, N_WIDTH), np.float32)
    step_out = np.zeros((N_WIDTH, N_FEED_FORWARD), np.float32)
    for number, (token, following) in enumerate(chain.items()):
        step_in[number, dimension[token]] = 1
        step_out[dimension[following], number] = SURE
    tensors = {
        "encoder/conv1/weight": zeros(N_WIDTH, N_MELS, 3),
        "encoder/conv1/bias": zeros(N_WIDTH),
        "encoder/conv2/weight": zeros(N_WIDTH, N_WIDTH, 3),
        "encoder/conv2/bias": zeros(N_WIDTH),
        "decoder/embeddings/weight": embeddings,
    }
    for side, n_ctx in (("encoder", N_AUDIO_CTX), ("decoder", N_TEXT_CTX)):
        tensors[f"{side}/num_heads"] = np.array(1, np.float32)
        tensors[f"{side}/position_encodings/encodings"] = zeros(n_ctx, N_WIDTH)
        tensors |= norm(side)
        tensors |= block(f"{side}/layer_0", is_decoder=side == "decoder")
    tensors["decoder/layer_norm/gamma"] *= CERTAIN
    tensors["decoder/layer_0/ffn/linear_0/weight"] = step_in
    tensors["decoder/layer_0/ffn/linear_0/bias"] -= 4
    tensors["decoder/layer_0/ffn/linear_1/weight"] = step_out
    return tensors


def block(name: str, *, is_decoder: bool) -> dict[str, Array]:
    """Make a block that does nothing."""
    tensors = norm(f"{name}/self_attention") | norm(f"{name}/ffn")
    tensors |= linear(f"{name}/self_attention/linear_0", 3 * N_WIDTH, N_WIDTH)
    tensors |= linear(f"{name}/self_attention/linear_1", N_WIDTH, N_WIDTH)
    tensors |= linear(f"{name}/ffn/linear_0", N_FEED_FORWARD, N_WIDTH)
    tensors |= linear(f"{name}/ffn/linear_1", N_WIDTH, N_FEED_FORWARD)
    if is_decoder:
        tensors |= norm(f"{name}/attention")
        for number, n_out in enumerate((1, 2, 1)):
            tensors |= linear(
                f"{name}/attention/linear_{number}", n_out * N_WIDTH, N_WIDTH
            )
    return tensors


def zeros(*shape: int) -> Array:
    return np.zeros(shape, np.float32)


def linear(name: str, n_out: int, n_in: int) -> dict[str, Array]:
    return {f"{name}/weight": zeros(n_out, n_in), f"{name}/bias": zeros(n_out)}


def norm(name: str) -> dict[str, Array]:
    return {
        f"{name}/layer_norm/gamma": zeros(N_WIDTH) + 1,
        f"{name}/layer_norm/beta": zeros(N_WIDTH),
    }
