"""GBNF, Lark and regular expressions that are short to send and long to work on."""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any, Final

from attack.asking import Question, plain, typed

BYTES: Final = 64_000
"""Just below what one grammar may have."""


def gbnf() -> Iterator[Question]:
    """Give grammars of llama.cpp's kind, on v1."""
    for name, text in _gbnf().items():
        yield plain("x", grammar=text, max_tokens=1).named(f"gbnf: {name}")


def _gbnf() -> dict[str, str]:
    n = BYTES
    half = n // 2
    return {
        "escapes without end": "root ::= " + '"\\' * half,
        "escapes in one literal": 'root ::= "' + "\\\\" * half + '"',
        "an open literal of escapes": 'root ::= "' + '\\"' * half,
        "open literals": "root ::= " + '" ' * half,
        "open classes": "root ::= " + "[\\" * half,
        "escaped brackets": "root ::= [" + "\\]" * half,
        "a class of escapes": "root ::= [" + "\\x41" * (n // 4) + "]",
        "open brackets": "root ::= " + "(" * n,
        "nested groups": "root ::= " + "(" * 15000 + '"a"' + ")" * 15000,
        "nested options": "root ::= " + "(" * 12000 + '"a"' + ")?" * 12000,
        "nested stars": "root ::= " + "(" * 8000 + '"a"' + ")*" * 8000,
        "doubling": "root ::= r0\n"
        + "".join(f"r{i} ::= r{i + 1} r{i + 1}\n" for i in range(60))
        + 'r60 ::= "a"\n',
        "doubling alternatives": "root ::= r0\n"
        + "".join(f'r{i} ::= r{i + 1} | "x" r{i + 1}\n' for i in range(60))
        + 'r60 ::= "a"\n',
        "repetition": 'root ::= "a"{60000}',
        "repetitions of repetitions": 'root ::= ((("a"{90}){90}){90}){90}',
        "many repetitions": "root ::= " + '"a"{0,999} ' * (n // 12),
        "a huge number": 'root ::= "a"{' + "9" * half + "}",
        "alternatives": "root ::= " + " | ".join(['"a"'] * 4000),
        "empty alternatives": "root ::= " + "|" * 4000,
        "comments": "# c\n" * (n // 5) + 'root ::= "a"',
        "one comment": 'root ::= "a" #' + "x" * (n - 20),
        "comments in a rule": "root ::= " + '"a" # "\\\n' * (n // 12),
        "newlines": "root ::= (" + "\n" * (n - 20) + '"a")',
        "blanks": "root ::= " + " " * (n - 20) + '"a"',
        "rules": "".join(f'r{i} ::= "a"\n' for i in range(4500)) + "root ::= r1",
        "a chain of rules": "root ::= r0\n"
        + "".join(f"r{i} ::= r{i + 1}\n" for i in range(950))
        + 'r950 ::= "a"',
        "left recursion": "root ::= root root | root root root | ",
        "hidden left recursion": 'root ::= e root | "a"\ne ::= ""',
        "a long name": "root ::= " + "a" * half + "\n" + "a" * half + ' ::= "x"',
        "half definitions": "root ::= x " + "a ::= " * (n // 8),
        "colons": "root ::= " + "::=" * (n // 4),
        "ambiguous": 'root ::= ("a" | "a" "a" | "a" "a" "a")*',
        "long literal": 'root ::= "' + "a" * (n - 20) + '"',
        "escapes of unicode": 'root ::= "' + "\\U0010FFFF" * (n // 11) + '"',
    }


def lark() -> Iterator[Question]:
    """Give Lark grammars, on v2."""
    for name, text in _lark().items():
        yield _structured(f"lark: {name}", {"type": "lark", "grammar": text})


def _lark() -> dict[str, str]:
    n = BYTES
    return {
        "nested groups": "start: " + "(" * 15000 + '"a"' + ")" * 15000,
        "doubling": "start: r0\n"
        + "".join(f"r{i}: r{i + 1} r{i + 1}\n" for i in range(60))
        + 'r60: "a"\n',
        "doubling terminals": "start: R0\n"
        + "".join(f"R{i}: R{i + 1} R{i + 1}\n" for i in range(40))
        + 'R40: "a"\n',
        "repetition": 'start: "a"{60000}',
        "repetitions of repetitions": 'start: ((("a"{90}){90}){90}){90}',
        "alternatives": "start: " + " | ".join(['"a"'] * 9000),
        "escapes": 'start: "' + "\\\\" * (n // 2) + '"',
        "open escapes": "start: " + '"\\' * (n // 2),
        "comments": "// c\n" * (n // 6) + 'start: "a"',
        "a pattern": "start: /(a+)+$/",
        "a large pattern": "start: /(a{1,90}){1,90}(b{1,90}){1,90}/",
        "intersections": "start: A\nA: /[a-z]{1,400}/ & /.*a.{200}/ & /.*b.{180}/",
        "ambiguous": 'start: start start | "a" | ""',
        "ambiguous, letter by letter": 'start: s\ns: s s | "a"',
        "ambiguous, in pieces": 'start: (s "b")*\ns: s s | "a" | "aa"',
        "nested json": 'start: %json {"type":"array","items":'
        + '{"type":"array","items":' * 2000
        + "{}"
        + "}" * 2001,
    }


def slow_tokens() -> Iterator[Question]:
    """Ask for long answers whose every token takes long to allow or to forbid."""
    for made in (lark, patterns):
        for question in made():
            line = question.line.replace(b'"max_tokens":1', b'"max_tokens":200')
            yield replace(question, line=line, name=f"long, {question.name}")


def patterns() -> Iterator[Question]:
    """Give regular expressions, on v2."""
    for name, text in _patterns().items():
        yield _structured(f"regex: {name}", {"type": "regex", "pattern": text})


def _patterns() -> dict[str, str]:
    n = BYTES
    return {
        "nested groups": "(" * 15000 + "a" + ")" * 15000,
        "nested stars": "(" * 10000 + "a" + ")*" * 10000,
        "repetitions of repetitions": "(((a{90}){90}){90}){90}",
        "counted": "a{1,60000}",
        "backtracking": "(a|a)*(a|a)*(a|a)*b" * 100,
        "alternatives": "|".join(["ab"] * 20000),
        "suffix": "[a-z]*a[a-z]{300}",
        "suffixes": "(.*a.{60}|.*b.{60}|.*c.{60}){20}",
        "classes": "[\\p{L}\\p{N}]{500}" * 50,
        "escapes": "\\\\" * (n // 2),
        "open classes": "[" * n,
        "open groups": "(" * n,
        "ranges": "[" + "a-z" * (n // 3) + "]",
    }


def _structured(name: str, response_format: Any) -> Question:
    return typed("x", response_format=response_format, max_tokens=1).named(name)
