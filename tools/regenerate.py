"""Write the files that follow from the code: `python -m tools.regenerate [--check]`.

======================  ===========================================================
file                    follows from
======================  ===========================================================
adr/README.md           the header of each record in adr/
protocol/errors.md      the classes of inferd.errors
protocol/schema/*.json  the messages of inferd.wire
protocol/examples/      the same: frames.d.ts in node/, frames.go in go/
docs/configuration.md   the tables of inferd.config and the places of inferd.paths
docs/bridge-*.md        the tables of fields of inferd.bridge's APIs
docs/metrics.md         the metrics of a daemon, in inferd.server.telemetry and gauges
share/man/man1/*.1      the parsers of inferd.cli, a page for each command
share/man/man5/*.5      the tables of inferd.config
share/*/...             completions for bash, zsh and fish, from the same parsers
systemd/**/*.socket     the surfaces of inferd.surfaces
systemd/**/*.service    the same, in the lists of sockets; the rest is written by hand
======================  ===========================================================

With ``--check`` nothing is written: stale files are named and the exit code is 1.
"""

import argparse
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path

from tools.documents.bridge import api_references
from tools.documents.completions import completions
from tools.documents.decisions import adr_index
from tools.documents.failures import error_table
from tools.documents.manual import manual_pages
from tools.documents.markdown import UnreadableError
from tools.documents.metrics import metric_list
from tools.documents.protocol_types import go, typescript
from tools.documents.schemas import MESSAGES, schema_text
from tools.documents.settings import settings_reference
from tools.documents.units import unit_texts, units_in

ROOT = Path(__file__).resolve().parent.parent


def main() -> int:
    """Write what is stale, or say what is."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--check", action="store_true", help="write nothing")
    check = parser.parse_args().check
    try:
        wanted = generated(ROOT)
    except UnreadableError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    stale = [path for path, text in wanted.items() if read(path) != text]
    there = (
        *schemas_in(ROOT),
        *units_in(ROOT / "systemd"),
        *files_in(ROOT / "share"),
    )
    orphans = [path for path in there if path not in wanted]
    if not check:
        write({path: wanted[path] for path in stale}, orphans)
    for path in (*stale, *orphans):
        print(f"{'stale' if check else 'written'}: {path.relative_to(ROOT)}")
    return 1 if check and (stale or orphans) else 0


def generated(root: Path) -> dict[Path, str]:
    """Compute every generated file below ``root``.

    Raises:
        UnreadableError: a record's header is not as the template has it, or a service
            does not name its sockets.
    """
    return {
        root / "adr" / "README.md": adr_index(root / "adr"),
        root / "protocol" / "errors.md": error_table(),
        root / "docs" / "configuration.md": settings_reference(),
        root / "docs" / "metrics.md": metric_list(),
        **{root / "docs" / name: text for name, text in api_references().items()},
        **{
            root / "protocol" / "schema" / f"{name}.json": schema_text(message)
            for name, message in MESSAGES.items()
        },
        root / "protocol" / "examples" / "node" / "frames.d.ts": typescript(),
        root / "protocol" / "examples" / "go" / "frames.go": go(),
        **{
            root / "share" / "man" / name: text for name, text in manual_pages().items()
        },
        **{root / "share" / name: text for name, text in completions().items()},
        **unit_texts(root / "systemd"),
    }


def schemas_in(root: Path) -> list[Path]:
    """List the schema files that there are."""
    return sorted((root / "protocol" / "schema").glob("*.json"))


def files_in(directory: Path) -> list[Path]:
    """List the files below a directory whose files are all generated."""
    return sorted(path for path in directory.rglob("*") if path.is_file())


def read(path: Path) -> str | None:
    """Read a file, if it is there."""
    return path.read_text(encoding="utf-8") if path.is_file() else None


def write(texts: Mapping[Path, str], orphans: Iterable[Path]) -> None:
    """Write files and remove those that nothing leads to any more."""
    for path, text in texts.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    for path in orphans:
        path.unlink()


if __name__ == "__main__":
    sys.exit(main())
