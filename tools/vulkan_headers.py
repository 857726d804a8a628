"""Make headers of Vulkan available that are new enough for llama.cpp; print their directory.

llama.cpp needs Vulkan 1.3.272 or newer; Debian 12 has 1.3.239. On Debian the package of the
next release is downloaded by apt, from where this machine's packages come from, and its headers
are unpacked into the cache. Elsewhere the system's headers have to do.
"""

import hashlib
import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Final

from inferd.trusted_path import open_directory
from tools.wheel import cache, say

SYSTEM: Final = Path("/usr/include")
NEEDED: Final = 272
"""``VK_HEADER_VERSION`` of Vulkan 1.3 with ``VK_EXT_layer_settings``."""
SUITE: Final = "trixie"
PACKAGE: Final = "libvulkan-dev=1.4.309.0-1"
SHA256: Final = "8d329d465e16168afff58b1bd0dd6db46aac2cc3f56054a481b25a04e90b345a"
SOURCES: Final = Path("/etc/apt/sources.list.d/debian.sources")
VERSION: Final = re.compile(r"#define VK_HEADER_VERSION (\d+)")
API: Final = re.compile(
    r"#define VK_HEADER_VERSION_COMPLETE VK_MAKE_API_VERSION\(0, 1, (\d+)"
)


def main() -> int:
    """Print the directory for ``-DVulkan_INCLUDE_DIR=``."""
    unpacked = cache() / "vulkan-headers"
    for include in (SYSTEM, unpacked / "usr/include"):
        if is_new_enough(include):
            print(include)
            return 0
    if not SOURCES.is_file() or shutil.which("apt-get") is None:
        say("error: the headers of Vulkan are older than 1.3.272, or missing")
        return 2
    os.close(open_directory(cache(), makes=True))
    with tempfile.TemporaryDirectory(prefix="vulkan-") as scratch:
        package = download(Path(scratch))
        if hashlib.sha256(package.read_bytes()).hexdigest() != SHA256:
            say(f"error: {package.name} is another file than the one that was tried")
            return 2
        subprocess.run(["dpkg-deb", "-x", package, unpacked], check=True)
    print(unpacked / "usr/include")
    return 0


def is_new_enough(include: Path) -> bool:
    """Tell whether a directory has headers that llama.cpp can be built with."""
    try:
        text = (include / "vulkan" / "vulkan_core.h").read_text()
    except OSError:
        return False
    minor, patch = (int(each.search(text)[1]) for each in (API, VERSION))  # type: ignore[index]
    return (minor, patch) >= (3, NEEDED)


def download(scratch: Path) -> Path:
    """Download the package with apt, which checks Debian's signature."""
    lists, archives = scratch / "lists", scratch / "cache"
    for directory in (lists / "partial", archives / "archives" / "partial"):
        directory.mkdir(parents=True)
    first = SOURCES.read_text().split("\n\n", 1)[0]
    source = re.sub(r"(?m)^Suites:.*$", f"Suites: {SUITE}", first)
    (scratch / "debian.sources").write_text(source + "\n")
    options = [
        f"-o{key}={value}"
        for key, value in {
            "Dir::Etc::SourceList": "/dev/null",
            "Dir::Etc::SourceParts": scratch,
            "Dir::State::Lists": lists,
            "Dir::Cache": archives,
            "APT::Sandbox::User": "root",
        }.items()
    ]
    for command in (["update"], ["download", PACKAGE]):
        subprocess.run(
            ["apt-get", "--quiet=2", *options, *command],
            check=True,
            cwd=scratch,
            stdout=sys.stderr,
        )
    return next(scratch.glob("*.deb"))


if __name__ == "__main__":
    sys.exit(main())
