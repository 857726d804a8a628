"""F-52: a picture or a recording that attacks what decodes it."""

import io
import json
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
import trio
from msgspec.structs import replace
from PIL import Image

from inferd.bridge.access_log import BridgeLog
from inferd.bridge.media import fork_server
from inferd.bridge.media.decoders import MediaDecoders
from inferd.config.bridge import BridgeSettings
from tests.fakes import hostile_media_decoder
from tests.fakes.in_media_decoder import run_in_media_decoder

pytestmark = pytest.mark.slow

ESCAPES = Path(__file__).parents[1] / "fakes/escapes.py"
LATER = "start a thread by a newer call"
N_ATTEMPTS = 132
PATIENCE_S = 60


@pytest.fixture
def decoders(monkeypatch) -> Iterator[MediaDecoders]:
    """Two decoders, which a file takes over that asks for it."""
    monkeypatch.setattr(fork_server, "PROGRAM", hostile_media_decoder.PROGRAM)
    made = MediaDecoders(
        replace(BridgeSettings(), media_decoders=2, media_decode_s=86_400.0),
        BridgeLog(list[bytes]().append),
    )
    yield made
    made.close()


async def decode(decoders: MediaDecoders, data: bytes, who: str) -> int:
    with await decoders.decode_picture(data, place="image", principal=who) as found:
        return found.n_bytes


def png() -> bytes:
    file = io.BytesIO()
    Image.new("RGB", (4, 4)).save(file, "PNG")
    return file.getvalue()


def test_a_file_that_takes_its_decoder_over_opens_starts_and_reaches_nothing(tmp_path):
    (tmp_path / "private").mkdir(mode=0o700)
    (tmp_path / "private/secret").write_text("secret")
    (tmp_path / "own").write_text("own")
    with subprocess.Popen(["sleep", "60"]) as victim, (tmp_path / "own").open() as own:
        try:
            said = run_in_media_decoder(
                ESCAPES, tmp_path, str(victim.pid), stdin=own.fileno()
            )
        finally:
            victim.kill()
    found = json.loads(said)
    assert len(found) == N_ATTEMPTS
    assert found.pop(LATER) == "ENOSYS"
    assert {name: error for name, error in found.items() if error != "EPERM"} == {}
    assert (tmp_path / "own").read_text() == "own"


async def test_a_decoder_of_the_bridge_is_held_like_that(decoders):
    async with trio.open_nursery() as nursery:
        nursery.start_soon(decode, decoders, b"spin", "a")
        pid = await running(decoders)
        assert restrictions(pid) == ("1", "0", "0")
        assert opened(pid) == {"/dev/null", "/memfd", "pipe"}
        nursery.cancel_scope.cancel()


async def test_the_files_of_one_caller_do_not_stop_anothers(decoders):
    async with trio.open_nursery() as nursery:
        for _ in range(3):
            nursery.start_soon(decode, decoders, b"spin", "hostile")
        await running(decoders)
        assert await decode(decoders, png(), "other") == 48
        nursery.cancel_scope.cancel()


async def running(decoders: MediaDecoders) -> str:
    """Wait for a decoder that a file has taken over."""
    with trio.fail_after(PATIENCE_S):
        while True:
            server = decoders._server
            pids = children(server.pid) if server else []
            if pids and "Seccomp_filters" in filters(pids[0]):
                return pids[0]
            await trio.sleep(0.01)


def restrictions(pid: str) -> tuple[str, ...]:
    """Give whether it can gain rights, what it holds of them, and files it may open."""
    status = Path(f"/proc/{pid}/status").read_text()
    limits = Path(f"/proc/{pid}/limits").read_text()
    [files] = [line.split()[-2] for line in limits.splitlines() if "files" in line]
    held = (number(status, "NoNewPrivs"), number(status, "CapEff"))
    return (*map(str, held), files)


def opened(pid: str) -> set[str]:
    """Name the kinds of what it has open."""
    names = [str(each.readlink()) for each in Path(f"/proc/{pid}/fd").iterdir()]
    return {name.split(":")[0].split(" ")[0] for name in names}


def children(pid: int) -> list[str]:
    return Path(f"/proc/{pid}/task/{pid}/children").read_text().split()


def filters(pid: str) -> str:
    """Read its status, once it has confined itself."""
    status = Path(f"/proc/{pid}/status").read_text()
    own = Path("/proc/self/status").read_text()
    is_confined = (
        number(status, "Seccomp_filters") == number(own, "Seccomp_filters") + 2
    )
    return status if is_confined else ""


def number(status: str, name: str) -> int:
    [line] = [line for line in status.splitlines() if line.startswith(f"{name}:")]
    return int(line.split()[1], 16)
