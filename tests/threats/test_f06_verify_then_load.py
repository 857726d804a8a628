import hashlib

import pytest

from inferd.config import LlamaCppSettings
from inferd.engine.process import start_worker
from inferd.engine.session import Session, SessionOverError
from inferd.ipc import Load
from tests.fakes.ledger import allot_all

HEADER = b"GGUF\x03\x00\x00\x00" + bytes(16)


async def load(settings: LlamaCppSettings) -> tuple[list[str], str]:
    """Have a worker load what is no whole model; give its phases and its complaint."""
    phases: list[str] = []
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
async def test_a_file_is_verified_at_each_load_before_the_library_reads_it(short_dir):
    path = short_dir / "m.gguf"
    path.write_bytes(HEADER)
    sha256 = hashlib.sha256(HEADER).hexdigest()
    settings = LlamaCppSettings(name="chat", model=str(path), sha256=sha256)
    phases, reason = await load(settings)
    assert phases.index("verify") < phases.index("mmap")
    assert "SHA-256" not in reason
    path.write_bytes(HEADER[:-1] + b"x")
    phases, reason = await load(settings)
    assert "mmap" not in phases
    assert f"expected {sha256}" in reason
