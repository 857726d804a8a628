import math

from inferd.models.whisper_header.tensors import tensor_shapes

TINY = {
    "n_audio_state": 384,
    "n_wide": 1536,
    "n_audio_ctx": 1500,
    "n_text_ctx": 448,
    "n_vocab": 51_865,
    "n_mels": 80,
}
N_OF_TINY = 37_184_640
"""Parameters that whisper's smallest model has, places of sound not counted."""


def test_a_model_has_fifteen_tensors_a_layer_that_hears_and_24_a_layer_that_writes():
    assert len(tensor_shapes(0, 0)) == 11
    assert len(tensor_shapes(6, 6)) == 11 + 6 * 15 + 6 * 24


def test_all_tensors_together_have_as_many_numbers_as_the_model_is_known_to_have():
    sizes = [
        math.prod(each if isinstance(each, int) else TINY[each] for each in shape)
        for name, shape in tensor_shapes(4, 4).items()
        if name != "encoder.positional_embedding"
    ]
    assert sum(sizes) == N_OF_TINY


def test_a_layer_that_writes_looks_at_what_was_heard():
    assert tensor_shapes(1, 1).keys() - tensor_shapes(1, 0).keys() == {
        f"decoder.blocks.0.{part}"
        for part in (
            *(f"{prefix}attn_ln.{each}" for prefix in ("", "cross_") for each in WB),
            *(f"{prefix}attn.key.weight" for prefix in ("", "cross_")),
            *(
                f"{prefix}attn.{name}.{each}"
                for prefix in ("", "cross_")
                for name in ("query", "value", "out")
                for each in WB
            ),
            *(f"{name}.{each}" for name in ("mlp_ln", "mlp.0", "mlp.2") for each in WB),
        )
    }


WB = ("weight", "bias")
