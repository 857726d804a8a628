from pathlib import Path

import pytest

from inferd.worker.remote.failure import RemoteError
from inferd.worker.remote.models import read_gemini_names, read_ids, read_tags

RECORDED = Path(__file__).parent / "openai" / "exchanges" / "models.answer"
"""Of llama-server."""
OF_OLLAMA = b'{"models":[{"name":"qwen3:latest","size":1},{"name":"gemma3:4b"}]}'
"""The form of "List Local Models" in docs/api.md of ollama/ollama."""
OF_GEMINI = b'{"models":[{"name":"models/gemini-2.5-flash","version":"2.5"}]}'
"""The form of ``ListModelsResponse`` of the Gemini API."""


def test_names_are_those_that_a_configuration_has():
    assert read_ids(RECORDED.read_bytes().partition(b"\n\n")[2]) == ["m"]
    assert read_gemini_names(OF_GEMINI) == ["gemini-2.5-flash"]
    assert read_tags(OF_OLLAMA) == ["qwen3", "gemma3:4b", "qwen3:latest"]


def test_what_is_no_list_is_an_error():
    for read in (read_ids, read_gemini_names, read_tags):
        for document in (b"", b"{}", b'{"data":[1]}', b'{"models":[{}]}', b"\xff"):
            with pytest.raises(RemoteError, match="is none"):
                read(document)
