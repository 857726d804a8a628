"""Convert llama.cpp's grammar format, GBNF, to llguidance's Lark.

llguidance has a converter; this module adds what it lacks. llguidance's lexer is greedy, so
a grammar without recursion becomes one pattern, which means the same in both. In a recursive
grammar, each literal, each character class and each rule without recursion is a lexeme, and
the longest possible lexeme always wins: a rule ``[a-z]+`` leaves nothing for an ``"s"`` after
it, and where both ``"if"`` and ``[a-z]+`` are allowed, only the former can start with ``if``.
So such grammars allow less than in llama.cpp, and never more.

Source: llama.cpp, ``grammars/README.md``.
"""

import re
from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import Final

from llguidance.gbnf_to_lark import (
    ASTNode,
    GbnfToLarkError,
    GrammarParser,
    RepetitionNode,
    RuleNode,
    RuleRefNode,
    SequenceNode,
    resolve,
)

from inferd.limits.worker import GRAMMAR_MAX_RULES
from inferd.worker.backend import RefusedError

_PARTS: Final = re.compile(
    r"""(?P<comment>\#[^\r\n]*+)
    | (?P<text>"(?:[^"\\]|\\.)*+(?P<text_end>"?+))
    | (?P<any>\[(?:[^\]\\]|\\.)*+(?P<any_end>\]?+))
    | (?P<defined>[\w-]++)(?=\s*+::=)
    | (?P<repeat>\{[0-9\s,]*+\}?)
    | (?P<name>[\w-]++)
    | (?P<dot>\.)""",
    re.VERBOSE | re.DOTALL,
)
"""Matches without backtracking: an unterminated part extends to the end of the grammar and
is then refused."""
_ESCAPE: Final = re.compile(
    r"\\(?:x([0-9a-fA-F]{2})|u([0-9a-fA-F]{4})|U([0-9a-fA-F]{8}))|\\(.)|([&~])",
    re.DOTALL,
)
_NUMBER: Final = re.compile("[0-9]++")
_MAX_REPETITIONS: Final = 2**31 - 1
"""Largest number of repetitions that the compiler reads."""
_ROOT: Final = "root"
_UNESCAPED_FROM: Final = 0x80
"""Characters from here on need no escape."""
_SURROGATES: Final = range(0xD800, 0xE000)
_LAST: Final = 0x10FFFF
_DOT: Final = f"[\\x00-{chr(_LAST)}]"
"""Any character; llguidance's dot does not match newlines."""


def gbnf_to_lark(source: str) -> str:
    """Convert a grammar whose start rule is ``root``.

    Raises:
        RefusedError: it is not valid GBNF, or has too many rules.
    """
    names = _names(source)
    renamed = _PARTS.sub(lambda part: _convert(part, names), source)
    try:
        rules = GrammarParser().parse(renamed)
        _drop_zero_repetitions(rules.values())
        _mark_terminals(rules)
        resolve(rules)
    except RecursionError as error:
        raise RefusedError("not valid GBNF: it is nested too deeply") from error
    except GbnfToLarkError as error:
        raise RefusedError(f"not valid GBNF: {error}") from error
    except Exception as error:  # with a message of Python's, if any
        raise RefusedError("not valid GBNF: it cannot be read") from error
    start = rules["start"]
    if start.alternatives.is_terminal():
        return "start: WHOLE\nWHOLE: " + "\n".join(
            str(rule).removeprefix("start: ")
            for rule in sorted(rules.values(), key=lambda rule: rule is not start)
        )
    return "\n".join(map(str, rules.values()))


def _drop_zero_repetitions(nodes: Iterable[ASTNode]) -> None:
    """Replace parts that are repeated zero times, which llguidance rejects, by nothing."""
    for node in nodes:
        if isinstance(node, RepetitionNode) and node.max_times == 0:
            node.node, node.max_times = SequenceNode([]), 1
        _drop_zero_repetitions(node.children())


def _mark_terminals(rules: Mapping[str, RuleNode]) -> None:
    """Mark the rules without recursion in linear time; ``resolve`` takes quadratic time."""
    used = {name: _references(rule) for name, rule in rules.items()}
    users = defaultdict[str, list[str]](list)
    for name, references in used.items():
        for each in references:
            users[each].append(name)
    n_open = {name: len(references) for name, references in used.items()}
    ready = [name for name, n in n_open.items() if not n and name != _ROOT]
    while ready:
        done = ready.pop()
        rules[done].rule_is_terminal = True
        for user in users[done]:
            n_open[user] -= 1
            if not n_open[user] and user != _ROOT:
                ready.append(user)


def _references(rule: RuleNode) -> set[str]:
    found: set[str] = set()
    waiting: list[ASTNode] = [rule]
    while waiting:
        node = waiting.pop()
        if isinstance(node, RuleRefNode):
            found.add(node.name)
        waiting += node.children()
    return found


def _names(source: str) -> dict[str, str]:
    """Rename the rules, so that the converter confuses no two of them."""
    parts = [*_PARTS.finditer(source)]
    defined = dict.fromkeys(part["defined"] for part in parts if part["defined"])
    if len(defined) > GRAMMAR_MAX_RULES:
        raise RefusedError(
            f"{len(defined)} rules, at most {GRAMMAR_MAX_RULES} are allowed"
        )
    for name in filter(None, (part["name"] for part in parts)):
        if name not in defined:
            raise RefusedError(f"not valid GBNF: there is no rule named {name}")
    if _ROOT not in defined:
        raise RefusedError("not valid GBNF: there is no rule named root")
    return {name: f"r{index}" for index, name in enumerate(defined)} | {_ROOT: _ROOT}


def _convert(part: re.Match[str], names: dict[str, str]) -> str:
    if name := part["defined"] or part["name"]:
        return names[name]
    if part["comment"]:
        return ""
    if part["dot"]:
        return _DOT
    if part["repeat"]:
        return _NUMBER.sub(_repetitions, part[0])
    _refuse_open(part)
    special = "&~" if part["any"] else ""
    return _ESCAPE.sub(lambda escape: _convert_escape(escape, special), part[0])


def _repetitions(number: re.Match[str]) -> str:
    """Strip a repetition count's leading zeros, and check that it is not too large."""
    digits = number[0].lstrip("0") or "0"
    if len(digits) > len(str(_MAX_REPETITIONS)) or int(digits) > _MAX_REPETITIONS:
        raise RefusedError(
            f"not valid GBNF: a part is repeated over {_MAX_REPETITIONS} times"
        )
    return digits


def _refuse_open(part: re.Match[str]) -> None:
    """Refuse a literal or a class without an end."""
    what, end = ("[", "any_end") if part["any"] else ('"', "text_end")
    if not part[end]:
        line = part.string.count("\n", 0, part.start()) + 1
        raise RefusedError(
            f"not valid GBNF: line {line}: what begins with {what} has no end"
        )


def _convert_escape(escape: re.Match[str], special: str) -> str:
    """Convert an escape to one that llguidance's literals and patterns know."""
    *coded, kept, bare = escape.groups()
    if bare:
        return f"\\x{ord(bare):02x}" if bare in special else str(bare)
    if kept:
        return escape[0]
    code = int("".join(filter(None, coded)), 16)
    if code > _LAST or code in _SURROGATES:
        raise RefusedError(f"not valid GBNF: {escape[0]} is no character")
    return chr(code) if code >= _UNESCAPED_FROM else f"\\x{code:02x}"
