"""Loaded by pytest into the other project's tests: what they expect of their own model."""

import json
import os
import sys
from functools import wraps
from pathlib import Path
from types import ModuleType
from typing import Any, Final

import pytest
from requests.structures import CaseInsensitiveDict

from proofs.server_suite.expected import THEIR_TEXTS

KEY: Final = "INFERD_SUITE_KEY"
"""Environment variable with a token of the bridges, for tests that name a key."""
RESULTS: Final = "INFERD_SUITE_RESULTS"
"""Environment variable with the path of the file that gets a line for each case."""
SHOWN_CHARS: Final = 400
"""Characters of a failure that are kept."""

_skipped: list[str] = []
"""Texts of the case that runs which were not compared."""

sys.modules.setdefault("wget", ModuleType("wget"))  # nothing is downloaded


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Put our key, and our comparison of texts and of headers, into the tests."""
    utils: Any = sys.modules["utils"]
    utils.ServerPreset.load_all = lambda: None
    utils.ServerProcess.make_request = _reading_headers(
        utils.ServerProcess.make_request
    )
    for module in {getattr(item, "module", None) for item in items} - {None}:
        if hasattr(module, "TEST_API_KEY"):
            setattr(module, "TEST_API_KEY", os.environ[KEY])  # noqa: B010  # not ours
        if hasattr(module, "match_regex"):
            setattr(module, "match_regex", _comparing(utils.match_regex))  # noqa: B010


def _reading_headers(make_request: Any) -> Any:
    """Compare names of headers as HTTP does, whatever their case."""

    @wraps(make_request)
    def request(*args: Any, **kwargs: Any) -> Any:
        result = make_request(*args, **kwargs)
        result.headers = CaseInsensitiveDict(result.headers)
        return result

    return request


def _comparing(match_regex: Any) -> Any:
    """Compare texts, but for those of their model."""

    @wraps(match_regex)
    def matches(regex: str, text: str) -> bool:
        if regex in THEIR_TEXTS:
            _skipped.append(regex)
            return True
        return bool(match_regex(regex, text))

    return matches


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> Any:
    """Write a line for each case."""
    report = yield
    if report.when == "call" or report.outcome != "passed":
        line = {
            "case": item.nodeid,
            "outcome": report.outcome,
            "is_text_compared": not _skipped,
            "why": str(call.excinfo.value)[:SHOWN_CHARS] if call.excinfo else "",
        }
        with Path(os.environ[RESULTS]).open("a") as file:
            file.write(json.dumps(line) + "\n")
        _skipped.clear()
    return report
