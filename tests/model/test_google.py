"""The kind ``gemini`` against the types of Google's own package, which is not installed here.

The environment ``google`` of ``tools/programs.py`` has it. Its types forbid fields that they do
not have, and take the names of the API as well as their own.
"""

import json
import subprocess
from typing import Any, Final

import msgspec
import pytest

from inferd.worker.remote.api import AnswerForm
from inferd.worker.remote.gemini.api import GEMINI_API
from tests.unit.worker.remote.gemini.test_gemini import (
    CALL,
    EXCHANGES,
    THINKING,
    settings as gemini,
)
from tests.unit.worker.remote.streams import AGENT, NAMED, bodies, split, written
from tools.programs import program_environ, program_python

pytestmark = [pytest.mark.slow, pytest.mark.short_version]

PROGRAM: Final = """
import json, sys
from google.genai import types

sent = json.load(sys.stdin)
for body in sent["requests"]:
    for content in body["contents"]:
        types.Content.model_validate(content)
    config = body["generationConfig"]
    for key in ("systemInstruction", "tools", "toolConfig"):
        if key in body:
            config[key] = body[key]
    types.GenerateContentConfig.model_validate(config)
for answer in sent["answers"]:
    types.GenerateContentResponse.model_validate_json(answer)
print(len(sent["requests"]), len(sent["answers"]))
"""


def validate(
    requests: list[Any], answers: list[bytes]
) -> subprocess.CompletedProcess[str]:
    sent = {"requests": requests, "answers": [each.decode() for each in answers]}
    return subprocess.run(
        [str(program_python("google")), "-c", PROGRAM],
        input=json.dumps(sent),
        env=program_environ(),
        capture_output=True,
        text=True,
        check=False,
    )


def test_what_is_sent_and_what_is_read_has_the_form_of_the_vendors_types():
    requests = [
        written(
            GEMINI_API, gemini(), msgspec.structs.replace(AGENT, tool_choice=NAMED)
        ),
        written(GEMINI_API, gemini(thinking_level="low", no_thinking="minimal"), AGENT),
    ]
    answers = [
        part for body in (CALL, THINKING) for part in split(AnswerForm.EVENTS, body)
    ]
    for request, parts in bodies(EXCHANGES):
        requests.append(json.loads(request))
        answers += parts
    done = validate(requests, answers)
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == [str(len(requests)), str(len(answers))]
    # and a field that the vendor does not have is found by this
    wrong: Any = json.loads(json.dumps(requests[0]))
    wrong["contents"][0]["parts"][0]["hologram"] = 3
    assert "hologram" in validate([wrong], []).stderr
