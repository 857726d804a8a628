import ctypes

import pytest

from inferd.limits.worker import SPEECH_SPINS
from inferd.worker.backend import LoadError
from inferd.worker.native.struct_size import written_bytes
from inferd.worker.whisper.library import (
    GREEDY,
    VERSION,
    check_defaults,
    check_version,
    description,
    limit_spinning,
    load_library,
)
from inferd.worker.whisper.structs import FULL_DEFAULTS, FullParams
from tests.cases import each_case


def test_the_library_says_what_it_is():
    found = description(load_library())
    assert found.startswith(f"whisper.cpp {VERSION} (")
    assert "= " not in found


def test_another_release_is_refused():
    with pytest.raises(
        LoadError, match=f"version {VERSION}, not 2.0.0; run: make setup"
    ):
        check_version(load_library(), "2.0.0")


@each_case("name", sorted(FULL_DEFAULTS))
def test_a_default_that_is_not_where_it_should_be_is_refused(name):
    params = load_library().whisper_full_default_params(GREEDY)
    check_defaults(params)
    value = b"x" if name.endswith(("regex", "prompt", "path", "language")) else 1
    setattr(params, name, value if value != FULL_DEFAULTS[name] else 0)
    with pytest.raises(LoadError, match=f"whisper.cpp's {name} is "):
        check_defaults(params)


def test_what_the_library_writes_is_measured():
    function = load_library().whisper_full_default_params
    address = ctypes.cast(function, ctypes.c_void_p).value
    assert address is not None
    assert written_bytes(address, GREEDY) == ctypes.sizeof(FullParams)


@pytest.mark.parametrize("variable", ["OMP_WAIT_POLICY", "GOMP_SPINCOUNT"])
def test_threads_wait_as_an_operator_says(variable):
    given = {variable: "x"}
    limit_spinning(given)
    assert given == {variable: "x"}


def test_threads_sleep_in_the_end_unless_an_operator_says_otherwise():
    environ = {"PATH": "/bin"}
    limit_spinning(environ)
    assert environ == {"PATH": "/bin", "GOMP_SPINCOUNT": str(SPEECH_SPINS)}
