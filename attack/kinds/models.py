"""Model files whose headers say what cannot be so."""

import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from attack.probe import Probe
from attack.scene import Scene, SkippedError
from attack.target import Started
from tests.daemon.configuration import llamacpp
from tests.daemon.connection import Frame, Listener
from tests.daemon.harness import eventually

KIND: Final = "models"
UINT32: Final = 4
"""How GGUF says that a number follows which has 32 bits."""
MOST: Final = 2**32 - 1
N_CTX: Final = 256
PATIENCE_S: Final = 20.0
HEADERS: Final = (
    *(("llama.context_length", 0), ("llama.context_length", MOST)),
    *(("llama.context_length", 2**31), ("llama.embedding_length", 0)),
    *(("llama.block_count", 0), ("llama.block_count", MOST)),
    *(("llama.attention.head_count", 0), ("llama.attention.head_count", MOST)),
    *(("tokenizer.ggml.bos_token_id", MOST), ("tokenizer.ggml.bos_token_id", 100_000)),
    *(("tokenizer.ggml.eos_token_id", MOST), ("tokenizer.ggml.eos_token_id", 2**31)),
    *(("tokenizer.ggml.eos_token_id", 360), ("tokenizer.ggml.unknown_token_id", 9999)),
)


def attacks() -> Iterator[Probe]:
    """Give all of them."""
    yield Probe(
        name="headers",
        kind=KIND,
        about="GGUF files with numbers that cannot be so",
        try_in=_load_all,
    )


def tiny_model(path: Path, **fields: object) -> Path:
    """Write a tiny model; give its path.

    Raises:
        SkippedError: what writes it is not installed.
    """
    try:
        from tests.model.tiny import write_tiny_model  # noqa: PLC0415  # gguf is large
    except ImportError as error:
        raise SkippedError(f"needs gguf: {error}") from error
    return write_tiny_model(path, **fields)  # type: ignore[arg-type]


def patched(data: bytes, key: str, value: int) -> bytes:
    """Give a file another number.

    Raises:
        ValueError: there is no such number in it.
    """
    mark = key.encode() + struct.pack("<I", UINT32)
    at = data.index(mark) + len(mark)
    return data[:at] + struct.pack("<I", value) + data[at + 4 :]


def _load_all(scene: Scene) -> None:
    if scene.running is not None:
        raise SkippedError("needs a daemon with a configuration of its own")
    with scene.scratch() as scratch:
        data = tiny_model(scratch / "model.gguf").read_bytes()
        for key, value in HEADERS:
            model = scratch / "hostile.gguf"
            model.write_bytes(patched(data, key, value))
            frame = first_word(scene, model)
            scene.require(
                f"{key} {value}: not served",
                frame.get("status") != "ready",
                "it is ready",
            )


def first_word(scene: Scene, model: Path) -> Frame:
    """Start a daemon with a model; give the first status that is not of a load.

    Nothing, where the daemon ends by itself.
    """
    daemon = Started(scene.checkout, {"backend": [llamacpp(model, n_ctx=N_CTX)]})
    daemon.spawn()
    try:
        if eventually(lambda: daemon.admin_sock.exists() or not daemon.is_running):
            return _first_word(daemon) if daemon.is_running else {}
        return {}
    finally:
        try:
            daemon.finish()
        except (AssertionError, OSError) as error:
            if "Traceback" in str(error):
                scene.notes.append(str(error)[:200])


def _first_word(daemon: Started) -> Frame:
    try:
        with Listener(daemon.admin_sock, timeout_s=PATIENCE_S) as listener:
            for frame in listener:
                if frame["status"] in ("ready", "restarting") or "reason" in frame:
                    return frame
    except OSError:
        pass  # it has ended, or says nothing more
    return {}
