import ctypes

from inferd.worker.whisper.structs import FULL_DEFAULTS, ContextParams, FullParams


def test_structs_are_as_large_as_a_compiler_makes_them():
    assert (ctypes.sizeof(FullParams), ctypes.sizeof(ContextParams)) == (304, 48)
    assert FullParams.abort_callback.offset == 208
    assert FullParams.vad_params.offset == 280


def test_what_is_known_by_default_is_a_field():
    names = {field[0] for field in FullParams._fields_}
    assert FULL_DEFAULTS.keys() <= names
    assert names - FULL_DEFAULTS.keys() == {
        "n_threads",
        "prompt_tokens",
        "vad_params",
        *(f"{name}_callback" for name in ("new_segment", "encoder_begin", "abort")),
        *(name for name in names if name.endswith("_user_data")),
    }
