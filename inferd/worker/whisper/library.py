"""Load whisper.cpp, and check that its structs have the expected layout.

ctypes cannot verify a layout. So only the release that the structs are written for is
accepted, and its default parameters are compared with the expected ones, field by field.
"""

import ctypes
import os
import platform
import re
from collections.abc import MutableMapping
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Final

from inferd.limits.worker import SPEECH_SPINS
from inferd.worker.backend import LoadError
from inferd.worker.native.struct_size import written_bytes
from inferd.worker.whisper.structs import (
    FULL_DEFAULTS,
    ContextParams,
    FullParams,
    Handle,
)

VERSION: Final = "1.8.5"
GREEDY: Final = 0
"""The sampling strategy, which is the library's default."""

_MODULE: Final = "_pywhispercpp"
_FILE: Final = "libwhisper.so"
_TOLERANCE: Final = 1e-6

_Int = ctypes.c_int
_Bytes = ctypes.c_char_p
_FUNCTIONS: Final = {
    "whisper_version": (_Bytes, ()),
    "whisper_print_system_info": (_Bytes, ()),
    "whisper_context_default_params": (ContextParams, ()),
    "whisper_full_default_params": (FullParams, (_Int,)),
    "whisper_init_from_file_with_params_no_state": (Handle, (_Bytes, ContextParams)),
    "whisper_free": (None, (Handle,)),
    "whisper_init_state": (Handle, (Handle,)),
    "whisper_free_state": (None, (Handle,)),
    "whisper_tokenize": (_Int, (Handle, _Bytes, Handle, _Int)),
    "whisper_token_eot": (ctypes.c_int32, (Handle,)),
    "whisper_lang_max_id": (_Int, ()),
    "whisper_lang_str": (_Bytes, (_Int,)),
    "whisper_pcm_to_mel_with_state": (_Int, (Handle, Handle, Handle, _Int, _Int)),
    "whisper_lang_auto_detect_with_state": (
        _Int,
        (Handle, Handle, _Int, _Int, Handle),
    ),
    "whisper_full_with_state": (_Int, (Handle, Handle, FullParams, Handle, _Int)),
    "whisper_full_n_segments_from_state": (_Int, (Handle,)),
    "whisper_full_get_segment_t0_from_state": (ctypes.c_int64, (Handle, _Int)),
    "whisper_full_get_segment_t1_from_state": (ctypes.c_int64, (Handle, _Int)),
    "whisper_full_get_segment_text_from_state": (_Bytes, (Handle, _Int)),
    "whisper_full_get_segment_no_speech_prob_from_state": (
        ctypes.c_float,
        (Handle, _Int),
    ),
    "whisper_full_n_tokens_from_state": (_Int, (Handle, _Int)),
    "whisper_full_get_token_id_from_state": (ctypes.c_int32, (Handle, _Int, _Int)),
    "whisper_full_get_token_p_from_state": (ctypes.c_float, (Handle, _Int, _Int)),
    "whisper_full_get_token_text_from_state": (_Bytes, (Handle, Handle, _Int, _Int)),
}
"""The functions used: result type and argument types by name."""


def limit_spinning(environ: MutableMapping[str, str]) -> None:
    """Make OpenMP threads sleep after spinning for a while, unless the operator set how.

    OpenMP reads the variables once, when the library is loaded.
    """
    if not environ.keys() & {"OMP_WAIT_POLICY", "GOMP_SPINCOUNT"}:
        environ["GOMP_SPINCOUNT"] = str(SPEECH_SPINS)


@cache
def load_library() -> ctypes.CDLL:
    """Load the library that the Python binding contains, and check it.

    Raises:
        LoadError: it is missing, or not the release that the structs are written for.
    """
    limit_spinning(os.environ)
    try:
        library = ctypes.CDLL(str(_path()))
        for name, (result, arguments) in _FUNCTIONS.items():
            function = getattr(library, name)
            function.restype, function.argtypes = result, arguments
    except (OSError, AttributeError) as error:
        raise LoadError(
            "whisper.cpp does not load; run: make setup",
            f"whisper.cpp does not load ({error}); run: make setup",
        ) from error
    check_version(library)
    return library


def description(library: ctypes.CDLL) -> str:
    """Return the library's name, version and the CPU features it was compiled for."""
    info = library.whisper_print_system_info().decode()
    listed = ", ".join(re.findall(r"(\w+) = 1", info))
    return f"whisper.cpp {library.whisper_version().decode()} ({listed})"


def check_version(library: ctypes.CDLL, expected: str = VERSION) -> None:
    """Check that the library is the release that the structs are written for.

    Raises:
        LoadError: it is not, or its parameters have another layout.
    """
    version = library.whisper_version().decode(errors="replace")
    if version != expected:
        raise LoadError(
            f"whisper.cpp is version {version}, not {expected}; run: make setup"
        )
    check_defaults(library.whisper_full_default_params(GREEDY))
    function = ctypes.cast(library.whisper_full_default_params, Handle).value or 0
    n_bytes = ctypes.sizeof(FullParams)
    if platform.machine() == "x86_64" and written_bytes(function, GREEDY) > n_bytes:
        raise LoadError(
            f"whisper.cpp's parameters have more than {n_bytes} bytes: library and "
            "binding are from different releases; run: make setup"
        )


def check_defaults(params: ctypes.Structure) -> None:
    """Check that every parameter has the default of the expected release.

    Raises:
        LoadError: one differs; the text names it.
    """
    for name, expected in FULL_DEFAULTS.items():
        found = getattr(params, name)
        is_near = (
            abs(found - expected) < _TOLERANCE
            if isinstance(expected, float)
            else found == expected
        )
        if not is_near:
            raise LoadError(
                f"whisper.cpp's {name} is {found!r} by default, not {expected!r}: library "
                "and binding are from different releases; run: make setup"
            )


def _path() -> Path:
    spec = find_spec(_MODULE)
    if spec is None or spec.origin is None:
        raise OSError(f"no module {_MODULE}")
    return Path(spec.origin).parent / _FILE
