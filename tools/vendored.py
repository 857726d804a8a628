"""The page's modules of others: `python -m tools.vendored [--check]`.

`inferd/bridge/page/static/vendor/vendored.json` names packages of npm's registry, the version of
each, the digest of its archive and the files that are taken out of it unchanged. This fetches
the archives, as npm is configured to, compares their digests and writes the files and their
digests. To move a version, change it there and empty its `integrity`. With `--check` nothing is
written, and the exit code is 1 where something would be. No script of a package is run.
"""

import argparse
import base64
import hashlib
import json
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path
from typing import Final, TypedDict

from tools.packages import ROOT

VENDOR: Final = ROOT / "inferd" / "bridge" / "page" / "static" / "vendor"
LIST: Final = VENDOR / "vendored.json"


class Package(TypedDict):
    """What is taken of a package."""

    version: str
    license: str
    integrity: str
    files: dict[str, dict[str, str]]
    """By the name here: ``from``, the path in the package, and ``sha256``."""


def main() -> int:
    """Write the files, or compare them."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true")
    is_check = parser.parse_args().check
    packages: dict[str, Package] = json.loads(LIST.read_text())
    written = {LIST: b""}
    for name, package in packages.items():
        written |= _fetch(name, package)
    written[LIST] = json.dumps(packages, indent=2).encode() + b"\n"
    changed = [path for path, data in written.items() if _differs(path, data)]
    for path in changed:
        print(path.relative_to(ROOT))
        if not is_check:
            path.write_bytes(written[path])
    return 1 if changed and is_check else 0


def _differs(path: Path, data: bytes) -> bool:
    return not path.exists() or path.read_bytes() != data


def _fetch(name: str, package: Package) -> dict[Path, bytes]:
    """Return the files of a package; note their digests in its record."""
    with tempfile.TemporaryDirectory() as directory:
        word = f"{name}@{package['version']}"
        pack = ["npm", "pack", word, "--ignore-scripts", "--json"]
        found = subprocess.run(pack, cwd=directory, check=True, capture_output=True)
        archive = Path(directory) / json.loads(found.stdout)[0]["filename"]
        digest = hashlib.sha512(archive.read_bytes()).digest()
        integrity = f"sha512-{base64.b64encode(digest).decode()}"
        if package["integrity"] not in {"", integrity}:
            sys.exit(f"{word}: the registry has another archive than vendored.json")
        package["integrity"] = integrity
        files: dict[Path, bytes] = {}
        with tarfile.open(archive) as tar:
            for target, origin in package["files"].items():
                member = tar.extractfile(f"package/{origin['from']}")
                if member is None:
                    sys.exit(f"{word}: {origin['from']} is not a file")
                files[VENDOR / target] = data = member.read()
                origin["sha256"] = hashlib.sha256(data).hexdigest()
    return files


if __name__ == "__main__":
    sys.exit(main())
