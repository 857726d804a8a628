import struct

import pytest

from inferd.config import LlamaCppSettings
from inferd.engine.conduct import SessionOverError
from inferd.engine.process import start_worker
from inferd.engine.session import Session
from inferd.ipc import Load
from tests.fakes.gguf_bytes import ARRAY, TEXT, U32, array, gguf, pair, sound, tensor
from tests.fakes.ledger import allot_all
from tests.fakes.source import imports, modules

ATTACKS = {
    "counts that overflow": b"GGUF" + struct.pack("<IQQ", 3, 2**64 - 1, 2**64 - 1),
    "a text of all memory": gguf(
        pairs=[pair(b"general.name", TEXT, struct.pack("<Q", 2**63))]
    ),
    "an array whose bytes overflow": gguf(
        pairs=[pair(b"a", ARRAY, array(U32, 2**62, b""))]
    ),
    "a shape that overflows": gguf(tensors=[tensor(b"t", [2**33, 2**31])]),
    "an offset behind the end": gguf(tensors=[tensor(b"t", [1], offset=2**63)]),
    "a tensor without its end": gguf(tensors=[tensor(b"t", [8])], data=bytes(31)),
    "a type that there is not": gguf(tensors=[tensor(b"t", [8], kind=1000)]),
    "half a file": sound()[:300],
}


async def refusal(path) -> tuple[list[str], str]:
    """Have a worker load a file; give its phases and its reason."""
    phases: list[str] = []
    settings = LlamaCppSettings(name="chat", model=str(path))
    async with start_worker() as process:
        with pytest.raises(SessionOverError) as caught:
            await Session(process).load(
                Load(settings=settings, n_slots=1),
                lambda loading: phases.append(loading.phase),
                allot_all,
                silence_s=20,
            )
    return phases, caught.value.reason


@pytest.mark.slow
@pytest.mark.parametrize("name", ATTACKS)
async def test_a_file_that_attacks_its_parser_never_reaches_it(name, short_dir):
    path = short_dir / "m.gguf"
    path.write_bytes(ATTACKS[name])
    phases, reason = await refusal(path)
    assert reason.startswith(f"model file {path}: ")
    assert "mmap" not in phases


def test_what_checks_a_file_runs_no_code_of_the_library():
    trees = dict(modules())
    for module in ("worker/llama/gguf.py", "worker/llama/files.py"):
        roots = {name.split(".")[0] for name in imports(trees[module])}
        assert not roots & {"llama_cpp", "numpy", "ctypes"}
