"""Pulls and removals in Ollama's form."""

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest

from inferd.bridge.ollama.store import ask_delete_model, ask_pull_model
from inferd.bridge.translation.failures import BridgeError, Reason
from inferd.wire.management import HelperDone, HelperFrame, PullProgress
from tests.cases import each_case
from tests.unit.bridge.admin.test_admin import Manager

FRAMES: list[HelperFrame] = [
    PullProgress(phase="plan"),
    PullProgress(phase="download", file="m", sha256="ab" * 32, done=1, total=4),
    HelperDone(model="m"),
]


def pulled(**fields: Any) -> Any:
    return ask_pull_model(msgspec.json.encode(fields), {}, "ada").request


@each_case(
    ("model", "source", "name"),
    [
        ("hf.co/me/m", "hf:me/m", "hf.co/me/m"),
        ("hf.co/me/m:Q8_0", "hf:me/m:Q8_0", "hf.co/me/m:Q8_0"),
        ("https://huggingface.co/me/m:latest", "hf:me/m", "huggingface.co/me/m"),
        ("hf:me/m:Q8_0", "hf:me/m:Q8_0", ""),
        ("embedded:chat", "embedded:chat", ""),
    ],
)
def test_a_model_of_a_hub_is_pulled_and_named_as_it_was_asked_for(model, source, name):
    for key in ("model", "name"):
        request = pulled(**{key: model})
        assert (request.command, request.source, request.model) == (
            "pull",
            source,
            name,
        )
        assert request.principal == "ada"


def test_a_model_of_another_registry_is_not_found():
    with pytest.raises(BridgeError, match=r"hf\.co/OWNER") as caught:
        pulled(model="llama3.2")
    assert caught.value.reason is Reason.MODEL_NOT_FOUND


@each_case(
    "fields",
    [
        {},
        {"model": ""},
        {"model": "hf:me/m", "name": "hf:me/n"},
        {"model": "hf:me/m", "insecure": True},
        {"model": "hf:me/m", "password": "x"},
        {"model": "hf.co/me/m\u009b2J"},
    ],
)
def test_what_cannot_be_pulled_is_refused(fields):
    with pytest.raises(BridgeError) as caught:
        pulled(**fields)
    assert caught.value.status == 400


def test_a_tag_latest_counts_as_none():
    body = msgspec.json.encode({"model": "mine:latest"})
    request = ask_delete_model(body, {}, "ada").request
    assert (request.command, request.model) == ("remove", "mine")


async def test_a_pull_is_told_as_ollama_tells_it(tmp_path: Path, autojump_clock):
    manager = Manager(tmp_path)
    manager.helper.script = [*FRAMES]
    answer = await manager.call("POST", "/api/pull", {"model": "hf.co/me/m"})
    assert answer.headers["content-type"] == "application/x-ndjson"
    lines = [json.loads(line) for line in answer.body.splitlines()]
    assert lines == [
        {"status": "pulling manifest"},
        {
            "status": "pulling abababababab",
            "digest": f"sha256:{'ab' * 32}",
            "total": 4,
            "completed": 1,
        },
        {"status": "success"},
    ]
    whole = await manager.call(
        "POST", "/api/pull", {"model": "hf:me/m", "stream": False}
    )
    assert json.loads(whole.body) == {"status": "success"}


async def test_a_failed_pull_and_a_removal_end_as_ollamas_do(
    tmp_path: Path, autojump_clock
):
    manager = Manager(tmp_path)
    failed = BridgeError(Reason.NOT_DONE, "no such repository")
    manager.helper.script = [FRAMES[0], failed]
    answer = await manager.call("POST", "/api/pull", {"model": "hf:me/m"})
    assert json.loads(answer.body.splitlines()[-1]) == {"error": "no such repository"}
    manager.helper.script = [HelperDone(freed_bytes=1)]
    removed = await manager.call("DELETE", "/api/delete", {"model": "m"})
    assert (removed.status, removed.body) == (200, b"")
    key = manager.token("ada")
    denied = await manager.call("DELETE", "/api/delete", {"model": "m"}, key)
    assert denied.status == 403
    assert "scope models" in json.loads(denied.body)["error"]
