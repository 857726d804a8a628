"""Tiny GGUF files with random weights: real decoding and encoding in milliseconds.

The one that writes has the architecture of llama, or with a window that of gemma2, whose
first layer sees no more than the window: two layers of width 64, and a
vocabulary made up on the spot: three specials, two chat markers, 256 bytes, and a piece
for each printable character, so that text and grammars work. Greedy output is printable
nonsense, the same each time on one machine.

The one that embeds or ranks has the architecture of BERT, in the same size. Each
printable character is a token, letters in lower case.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import gguf
import numpy as np
import numpy.typing as npt

from inferd.models.convert.bert import Bert, with_second_segment, write_bert
from inferd.models.convert.vocabulary import SPECIALS as BERT_SPECIALS

TEMPLATE: Final = (
    "{% for message in messages %}<|im_start|>{{ message['role'] }}\n"
    "{{ message['content'] }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
SPECIALS: Final = ("<unk>", "<s>", "</s>", "<|im_start|>", "<|im_end|>")
PRINTABLE: Final = range(32, 127)
N_CTX: Final = 512
WIDTH: Final = 64
HEADS: Final = 4
KV_HEADS: Final = 2
FEED_FORWARD: Final = 128
LAYERS: Final = 2
SSM_KERNEL: Final = 4
SSM_STATE: Final = 8
SSM_RANK: Final = 4
GRID_SECTIONS: Final = [4, 2, 2, 0]
"""Pairs of numbers in a head that turn by time, row and column."""
GAIN: Final = 2.0
"""Scale of the blocks' weights: enough for the answer to depend on the prompt."""

Array = npt.NDArray[np.float32]


@dataclass(frozen=True)
class Kind:
    """How weights are stored."""

    file: gguf.LlamaFileType
    tensor: gguf.GGMLQuantizationType


KINDS: Final = {
    "f32": Kind(gguf.LlamaFileType.ALL_F32, gguf.GGMLQuantizationType.F32),
    "q8_0": Kind(gguf.LlamaFileType.MOSTLY_Q8_0, gguf.GGMLQuantizationType.Q8_0),
}


def write_tiny_model(  # noqa: PLR0913  # all that tests want to differ
    path: Path,
    *,
    kind: str = "f32",
    seed: int = 0,
    template: str | None = TEMPLATE,
    recommended: Mapping[str, float | str] = {},
    window: int = 0,
    has_grids: bool = False,
) -> Path:
    """Write the model; give its path.

    Args:
        path: of the file.
        kind: ``f32``, or ``q8_0``, whose kernels are the first to crash in a build that
            does not suit the processor.
        seed: of the weights.
        template: the chat template, or ``None`` for a model without one.
        recommended: sampling options, by their names in the header.
        window: tokens that every other layer sees; 0 for all of them.
        has_grids: whether places in pictures have a row and a column, as Qwen's.
    """
    architecture = "qwen2vl" if has_grids else "llama"
    writer = gguf.GGUFWriter(path, "gemma2" if window else architecture)
    writer.add_name("tiny-random")
    for option, value in recommended.items():
        add = writer.add_string if isinstance(value, str) else writer.add_float32
        add(f"general.sampling.{option}", value)
    add_vocabulary(writer)
    if template is not None:
        writer.add_chat_template(template)
    add_shape(writer, KINDS[kind])
    if window:
        writer.add_sliding_window(window)
    if has_grids:
        writer.add_rope_dimension_sections(GRID_SECTIONS)
    has_window = bool(window)
    add_weights(writer, KINDS[kind], np.random.default_rng(seed), has_window=has_window)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def write_tiny_mamba(path: Path) -> Path:
    """Write a model with a state instead of a cache, in the same size; give its path."""
    writer = gguf.GGUFWriter(path, "mamba")
    writer.add_name("tiny-random-mamba")
    add_vocabulary(writer)
    writer.add_chat_template(TEMPLATE)
    writer.add_vocab_size(len(vocabulary()))
    writer.add_context_length(N_CTX)
    writer.add_embedding_length(WIDTH)
    writer.add_feed_forward_length(0)
    writer.add_head_count(0)
    writer.add_block_count(LAYERS)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_ssm_conv_kernel(SSM_KERNEL)
    writer.add_ssm_inner_size(2 * WIDTH)
    writer.add_ssm_state_size(SSM_STATE)
    writer.add_ssm_time_step_rank(SSM_RANK)
    writer.add_file_type(gguf.LlamaFileType.ALL_F32)
    for name, values in mamba_weights(np.random.default_rng(0)).items():
        writer.add_tensor(name, values)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def mamba_weights(random: np.random.Generator) -> dict[str, Array]:
    """Make up the tensors: norms are ones, the rest is noise."""

    def noise(*shape: int) -> Array:
        scale = GAIN / np.sqrt(shape[-1])
        return np.asarray(random.standard_normal(shape) * scale, np.float32)

    inner = 2 * WIDTH
    n_vocab = len(vocabulary())
    output = noise(n_vocab, WIDTH)
    output[: n_vocab - len(PRINTABLE)] = 0
    tensors = {
        "token_embd.weight": noise(n_vocab, WIDTH),
        "output_norm.weight": np.ones(WIDTH, np.float32),
        "output.weight": output,
    }
    for layer in range(LAYERS):
        tensors |= {
            f"blk.{layer}.{name}": values
            for name, values in {
                "attn_norm.weight": np.ones(WIDTH, np.float32),
                "ssm_in.weight": noise(2 * inner, WIDTH),
                "ssm_conv1d.weight": noise(inner, SSM_KERNEL),
                "ssm_conv1d.bias": np.zeros(inner, np.float32),
                "ssm_x.weight": noise(SSM_RANK + 2 * SSM_STATE, inner),
                "ssm_dt.weight": noise(inner, SSM_RANK),
                "ssm_dt.bias": np.zeros(inner, np.float32),
                "ssm_a": -np.ones((inner, SSM_STATE), np.float32),
                "ssm_d": np.ones(inner, np.float32),
                "ssm_out.weight": noise(WIDTH, inner),
            }.items()
        }
    return tensors


def vocabulary() -> list[tuple[str, gguf.TokenType, float]]:
    """List token, type and score."""
    kinds = gguf.TokenType
    specials = [
        (text, kinds.CONTROL if number else kinds.UNKNOWN, 0.0)
        for number, text in enumerate(SPECIALS)
    ]
    every_byte = [(f"<0x{byte:02X}>", kinds.BYTE, -1000.0) for byte in range(256)]
    letters = [(chr(code), kinds.NORMAL, -1.0) for code in PRINTABLE]
    letters[0] = ("\N{LOWER ONE EIGHTH BLOCK}", kinds.NORMAL, -1.0)  # a space
    return specials + every_byte + letters


def add_vocabulary(writer: gguf.GGUFWriter) -> None:
    """Write the tokenizer's part of the header."""
    tokens, types, scores = zip(*vocabulary(), strict=True)
    writer.add_tokenizer_model("llama")
    writer.add_tokenizer_pre("default")
    writer.add_token_list(list(tokens))
    writer.add_token_types(list(types))
    writer.add_token_scores(list(scores))
    writer.add_bos_token_id(SPECIALS.index("<s>"))
    writer.add_eos_token_id(SPECIALS.index("<|im_end|>"))
    writer.add_unk_token_id(SPECIALS.index("<unk>"))
    writer.add_add_bos_token(value=True)
    writer.add_add_space_prefix(value=False)


def add_shape(writer: gguf.GGUFWriter, kind: Kind) -> None:
    """Write the architecture's part of the header."""
    writer.add_vocab_size(len(vocabulary()))
    writer.add_context_length(N_CTX)
    writer.add_embedding_length(WIDTH)
    writer.add_block_count(LAYERS)
    writer.add_feed_forward_length(FEED_FORWARD)
    writer.add_head_count(HEADS)
    writer.add_head_count_kv(KV_HEADS)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_rope_dimension_count(WIDTH // HEADS)
    writer.add_file_type(kind.file)


def add_weights(
    writer: gguf.GGUFWriter,
    kind: Kind,
    random: np.random.Generator,
    *,
    has_window: bool = False,
) -> None:
    """Write the tensors: norms are ones, the rest is noise.

    Those of gemma2 have two norms more, and its output is what its tokens are.
    """

    def noise(*shape: int, gain: float = GAIN) -> Array:
        scale = gain / np.sqrt(shape[-1])
        return np.asarray(random.standard_normal(shape) * scale, np.float32)

    def add(name: str, values: Array) -> None:
        stored = kind.tensor if values.ndim > 1 else gguf.GGMLQuantizationType.F32
        packed = gguf.quants.quantize(values, stored)
        writer.add_tensor(name, packed, raw_dtype=stored)

    n_vocab = len(vocabulary())
    output = noise(n_vocab, WIDTH, gain=1.0)
    output[: n_vocab - len(PRINTABLE)] = 0  # greedy output stays printable
    add("output_norm.weight", np.ones(WIDTH, np.float32))
    if has_window:
        add("token_embd.weight", output)
    else:
        add("token_embd.weight", noise(n_vocab, WIDTH, gain=1.0))
        add("output.weight", output)
    kv_width = WIDTH // HEADS * KV_HEADS
    for layer in range(LAYERS):
        block = f"blk.{layer}."
        add(f"{block}attn_norm.weight", np.ones(WIDTH, np.float32))
        add(f"{block}ffn_norm.weight", np.ones(WIDTH, np.float32))
        if has_window:
            add(f"{block}post_attention_norm.weight", np.ones(WIDTH, np.float32))
            add(f"{block}post_ffw_norm.weight", np.ones(WIDTH, np.float32))
        add(f"{block}attn_q.weight", noise(WIDTH, WIDTH))
        add(f"{block}attn_k.weight", noise(kv_width, WIDTH))
        add(f"{block}attn_v.weight", noise(kv_width, WIDTH))
        add(f"{block}attn_output.weight", noise(WIDTH, WIDTH))
        add(f"{block}ffn_gate.weight", noise(FEED_FORWARD, WIDTH))
        add(f"{block}ffn_up.weight", noise(FEED_FORWARD, WIDTH))
        add(f"{block}ffn_down.weight", noise(WIDTH, FEED_FORWARD))


# --- BERT ---------------------------------------------------------------------------

BERT_PIECES: Final = sorted({chr(code).lower() for code in PRINTABLE[1:]})
POOLINGS: Final = {
    "mean": gguf.PoolingType.MEAN,
    "cls": gguf.PoolingType.CLS,
    "last": gguf.PoolingType.LAST,
    "rank": gguf.PoolingType.RANK,
}


def write_tiny_bert(
    path: Path,
    *,
    pooling: str = "mean",
    kind: str = "f32",
    n_ctx: int = N_CTX,
    has_second_segment: bool = False,
) -> Path:
    """Write an encoder; give its path.

    Args:
        path: of the file.
        pooling: ``mean``, ``cls`` or ``last`` for embeddings, ``rank`` for scores.
        kind: ``f32``, ``f16`` or ``q8_0``.
        n_ctx: tokens of the longest text.
        has_second_segment: whether a document's tokens have ids of their own.
    """
    continued = [f"##{piece}" for piece in BERT_PIECES]
    vocabulary = [*BERT_SPECIALS, *BERT_PIECES, *continued]
    model = Bert(
        name="tiny-random-bert",
        license="mit",
        tensors=bert_weights(len(vocabulary), n_ctx),
        vocabulary=vocabulary,
        n_heads=HEADS,
        layer_norm_epsilon=1e-12,
        pooling=POOLINGS[pooling],
        storage=kind,
    )
    write_bert(path, with_second_segment(model) if has_second_segment else model)
    return path


def bert_weights(n_vocab: int, n_ctx: int) -> dict[str, Array]:
    """Make up the tensors: norms change nothing, the rest is noise."""
    random = np.random.default_rng(0)
    tensors: dict[str, Array] = {}

    def noise(name: str, *shape: int, gain: float = GAIN) -> None:
        values = random.standard_normal(shape) * gain / np.sqrt(shape[-1])
        tensors[f"{name}.weight"] = np.asarray(values, np.float32)

    def linear(name: str, n_out: int, n_in: int) -> None:
        noise(name, n_out, n_in)
        tensors[f"{name}.bias"] = np.zeros(n_out, np.float32)

    def norm(name: str) -> None:
        tensors[f"{name}.weight"] = np.ones(WIDTH, np.float32)
        tensors[f"{name}.bias"] = np.zeros(WIDTH, np.float32)

    noise("embeddings.word_embeddings", n_vocab, WIDTH)
    noise("embeddings.position_embeddings", n_ctx, WIDTH, gain=1.0)
    noise("embeddings.token_type_embeddings", 2, WIDTH, gain=1.0)
    norm("embeddings.LayerNorm")
    for layer in range(LAYERS):
        block = f"encoder.layer.{layer}."
        for part in ("self.query", "self.key", "self.value", "output.dense"):
            linear(f"{block}attention.{part}", WIDTH, WIDTH)
        norm(f"{block}attention.output.LayerNorm")
        linear(f"{block}intermediate.dense", FEED_FORWARD, WIDTH)
        linear(f"{block}output.dense", WIDTH, FEED_FORWARD)
        norm(f"{block}output.LayerNorm")
    linear("pooler.dense", WIDTH, WIDTH)
    linear("classifier", 1, WIDTH)
    return tensors
