"""Nothing but ``inferd.terminal`` prints: what others print nobody has made harmless."""

import ast
from pathlib import Path

from tests.cases import each_case

ROOT = Path(__file__).parents[2]
TERMINAL = "inferd/terminal.py"
ALLOWED = {
    TERMINAL: {"print", "sys.stdout", "sys.stderr"},
    # asks what stderr is; lines go there by its number, made by server/telemetry/log_format.py
    "inferd/server/telemetry/log.py": {"sys.stderr"},
}
ELSEWHERE = (
    # a worker's stdout and stderr are pipes to the daemon, which keeps one line for a reason
    "inferd/worker/",
    # run by inferd.models, which says each of their lines itself
    "inferd/models/convert/",
)
STREAMS = {f"sys.{name}" for name in ("stdout", "stderr", "__stdout__", "__stderr__")}
TRACEBACKS = {f"traceback.print_{name}" for name in ("exc", "exception", "last", "tb")}
REFUSED = STREAMS | TRACEBACKS | {"logging.StreamHandler", "logging.basicConfig"}
ENDINGS = {"sys.exit", "SystemExit", "exit", "quit"}


def name_of(node: ast.AST) -> str:
    match node:
        case ast.Name(id=name):
            return name
        case ast.Attribute(value=value, attr=attr):
            return f"{name_of(value)}.{attr}"
        case _:
            return ""


def is_text(node: ast.AST) -> bool:
    return isinstance(node, ast.JoinedStr) or (
        isinstance(node, ast.Constant) and isinstance(node.value, str)
    )


def prints(tree: ast.AST) -> set[str]:
    """Find what prints, or could hand a stream on to what does."""
    found: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and name_of(node) in REFUSED:
            found.add(name_of(node))
        if isinstance(node, ast.ImportFrom) and node.module in ("sys", "traceback"):
            names = {f"{node.module}.{each.name}" for each in node.names}
            found |= names & REFUSED
        if not isinstance(node, ast.Call):
            continue
        called = name_of(node.func)
        if called in ("print", "input", "warnings.warn"):
            found.add(called)
        if called == "os.write" and isinstance(node.args[0], ast.Constant):
            found.add("os.write")
        if called == "argparse.ArgumentParser":
            found.add(called)
        if called in ENDINGS and any(map(is_text, node.args)):
            found.add(called)
    return found


def sources() -> list[str]:
    paths = (ROOT / "inferd").rglob("*.py")
    names = (path.relative_to(ROOT).as_posix() for path in paths)
    return sorted(name for name in names if not name.startswith(ELSEWHERE))


def test_nothing_but_the_terminal_prints():
    for source in sources():
        found = prints(ast.parse((ROOT / source).read_text()))
        assert found - ALLOWED.get(source, set()) == set(), source


def test_every_exception_is_needed():
    for source, allowed in ALLOWED.items():
        assert allowed <= prints(ast.parse((ROOT / source).read_text()))


@each_case(
    ("text", "found"),
    [
        ("print('a')", {"print"}),
        ("from sys import stderr", {"sys.stderr"}),
        ("import sys; sys.stdout.buffer.write(b'a')", {"sys.stdout"}),
        ("traceback.print_exc()", {"traceback.print_exc"}),
        ("sys.exit(f'{a}')", {"sys.exit"}),
        ("raise SystemExit('a')", {"SystemExit"}),
        ("os.write(2, b'a')", {"os.write"}),
        ("os.write(fd, b'a'); sys.exit(2); say('a')", set()),
    ],
)
def test_what_prints_is_found(text, found):
    assert prints(ast.parse(text)) == found
