"""Install inferd as a system service, or take it away again.

`make install` puts a virtual environment into /opt/inferd, a link into /usr/local/bin, the
units into /etc/systemd, and the embedded models into /var/cache/inferd.
`make uninstall` removes these; /etc/inferd and the user inferd stay.
"""

import argparse
import os
import shutil
import subprocess
import sys
from pathlib import Path

from tools import setup

PREFIX = Path("/opt/inferd")
LINK = Path("/usr/local/bin/inferd")
SOURCES = setup.ROOT / "systemd"
SYSTEM_UNITS = Path("/etc/systemd/system")
USER_UNITS = Path("/etc/systemd/user")
SYSUSERS = Path("/etc/sysusers.d/inferd.conf")
GPU = PREFIX / "share" / "gpu.conf"
UNITS = ("inferd*.socket", "inferd*.service")
"""Instances among them; the sockets first, which would start the service again."""
CACHE = Path("/var/cache/inferd")
HOMES = (Path("/home"), Path("/root"))
SYSTEM_PYTHON = Path("/usr/bin/python3")
PYTHON_TEST = "import sys, venv, ensurepip; sys.exit(sys.version_info < (3, 11))"


def main() -> int:
    """Install or uninstall."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("action", choices=("install", "uninstall"))
    action = parser.parse_args().action
    if os.geteuid() != 0:
        setup.say(f"error: make {action} needs root; try: sudo make {action}")
        return 2
    if action == "install":
        return install()
    uninstall()
    return 0


def install() -> int:
    """Put everything in place; an earlier version is replaced."""
    python = service_python()
    if python is None:
        setup.say(
            "error: a service cannot see a Python below a home directory, and "
            f"{SYSTEM_PYTHON} is not 3.11 or later with venv; "
            "run: make install PYTHON=/path/to/python3"
        )
        return 2
    setup.say(f"installing into {PREFIX} with {python}")
    shutil.rmtree(PREFIX, ignore_errors=True)
    run(str(python), "-m", "venv", str(PREFIX))
    pip = (
        str(PREFIX / "bin" / "pip"),
        "--disable-pip-version-check",
        "install",
        "--quiet",
    )
    constraint = ("--constraint", str(setup.CONSTRAINTS))
    run(
        *pip,
        *constraint,
        str(setup.llama_wheel(PREFIX / "bin" / "python")),
        f"{setup.ROOT}[llama,whisper,media]",
    )
    share = PREFIX / "share"
    share.mkdir()
    shutil.copy(setup.ROOT / "README.md", share)
    place_files()
    fetch_models()
    setup.say("installed; next: systemctl enable --now inferd.socket inferd.service")
    return 0


def service_python() -> Path | None:
    """Find a Python that a service with ProtectHome= can run."""
    for candidate in (Path(sys.base_prefix) / "bin" / "python3", SYSTEM_PYTHON):
        real = candidate.resolve()
        if real.is_file() and not any(real.is_relative_to(home) for home in HOMES):
            test = subprocess.run(
                [real, "-c", PYTHON_TEST], check=False, capture_output=True
            )
            if test.returncode == 0:
                return candidate
    return None


def placed() -> dict[Path, Path]:
    """Say what is copied, and from where."""
    files = {SYSUSERS: SOURCES / "inferd.sysusers", GPU: SOURCES / "gpu.conf"}
    for directory, sources in ((SYSTEM_UNITS, SOURCES), (USER_UNITS, SOURCES / "user")):
        for pattern in UNITS:
            files |= {directory / unit.name: unit for unit in sources.glob(pattern)}
    return files


def place_files() -> None:
    """Copy the units, make the user, link the command."""
    for target, source in placed().items():
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(source, target)
    run("systemd-sysusers", str(SYSUSERS))
    LINK.parent.mkdir(parents=True, exist_ok=True)
    LINK.unlink(missing_ok=True)
    LINK.symlink_to(PREFIX / "bin" / "inferd")
    reload_systemd()


def fetch_models() -> None:
    """Put the embedded models where the service looks: from our cache, or anew."""
    CACHE.mkdir(parents=True, exist_ok=True)
    own = setup.cache() / "models"
    if own.is_dir():
        unfinished = shutil.ignore_patterns(".partial-*")
        shutil.copytree(own, CACHE / "models", ignore=unfinished, dirs_exist_ok=True)
    environ = os.environ | {"INFERD_CACHE_DIR": str(CACHE)}
    subprocess.run(
        [PREFIX / "bin" / "python", "-m", "inferd.models"], env=environ, check=True
    )
    run("chown", "--recursive", "inferd:inferd", str(CACHE))


def uninstall() -> None:
    """Stop the services and remove what install has placed."""
    if is_booted():
        names = sorted(path.name for path in placed() if path.parent == SYSTEM_UNITS)
        subprocess.run(["systemctl", "stop", *UNITS], check=False)
        subprocess.run(["systemctl", "disable", *names], check=False)
    for path in (*placed(), LINK):
        path.unlink(missing_ok=True)
    for directory in (PREFIX, CACHE):
        shutil.rmtree(directory, ignore_errors=True)
    reload_systemd()
    setup.say("removed; /etc/inferd and the user inferd are still there")


def is_booted() -> bool:
    """Tell whether systemd manages this machine."""
    return Path("/run/systemd/system").is_dir()


def reload_systemd() -> None:
    """Have systemd read its units again, if it runs."""
    if is_booted():
        run("systemctl", "daemon-reload")


def run(*command: str) -> None:
    """Run a command that must succeed."""
    subprocess.run(command, check=True)


if __name__ == "__main__":
    sys.exit(main())
