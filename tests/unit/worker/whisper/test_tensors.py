from inferd.worker.whisper.tensors import shapes


def test_a_model_has_fifteen_tensors_a_layer_that_hears_and_24_a_layer_that_writes():
    assert len(shapes(0, 0)) == 11
    assert len(shapes(6, 6)) == 11 + 6 * 15 + 6 * 24


def test_a_layer_that_writes_looks_at_what_was_heard():
    assert shapes(1, 1).keys() - shapes(1, 0).keys() == {
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
