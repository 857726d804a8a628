"""Lines that atheris finds by what they reach in framing, decoders and ``resolve``.

Arguments are libFuzzer's; without a directory of its own, it starts from the seeds. What
it finds stays in a file that it names. Where atheris is not installed, this says so and
does nothing.

    python -m fuzz.coverage -max_total_time=60
"""

import importlib.util
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Final

from fuzz.corpus import SEEDS, SURFACES

INSIDE: Final = "INFERD_FUZZ_INSIDE"
"""Set where libFuzzer runs: it ends its process itself, so others clean up."""
MAX_LINE_BYTES: Final = 16 * 1024
NOT_INSTALLED: Final = (
    "fuzz.coverage: SKIPPED, atheris is not installed: "
    "pip install --constraint constraints.txt atheris"
)


def main() -> int:
    """Run libFuzzer in a process of its own."""
    if importlib.util.find_spec("atheris") is None:
        print(NOT_INSTALLED, file=sys.stderr)
        return 0
    if INSIDE in os.environ:
        fuzz()
    with tempfile.TemporaryDirectory(prefix="inferd-corpus-") as corpus:
        write_seeds(Path(corpus))
        command = [
            *(sys.executable, "-m", "fuzz.coverage", *sys.argv[1:]),
            *(corpus, f"-max_len={MAX_LINE_BYTES}", "-timeout=10"),
            f"-artifact_prefix={tempfile.gettempdir()}/inferd-",
        ]
        environ = {**os.environ, INSIDE: "1"}
        return subprocess.run(command, env=environ, check=False).returncode


def write_seeds(directory: Path) -> None:
    """Write a file for each seed: the surface's number, then the line."""
    for number, surface in enumerate(SURFACES):
        for at, line in enumerate(SEEDS[surface]):
            (directory / f"{surface}-{at}").write_bytes(bytes([number]) + line)


def fuzz() -> None:
    """Have libFuzzer try lines; it does not return."""
    import atheris  # noqa: PLC0415  # it may be absent

    with atheris.instrument_imports(include=["inferd.wire", "inferd.resolve"]):
        from fuzz.lines import judge_all  # noqa: PLC0415  # instrumented as it is read
        from fuzz.mutator import Mutant  # noqa: PLC0415

    def try_one(data: bytes) -> None:
        if data:
            surface = SURFACES[data[0] % len(SURFACES)]
            for _ in judge_all(Mutant(surface, data[1:]), in_pieces=True):
                pass

    atheris.Setup(sys.argv, try_one)
    atheris.Fuzz()


if __name__ == "__main__":
    sys.exit(main())
