"""The types in TypeScript and Go fit what is sent, both ways, and nothing else."""

import json
import re
import subprocess
from pathlib import Path
from typing import Any, Final

import pytest

from inferd.errors import ErrorCode
from inferd.wire.codec import encode
from inferd.wire.offered_facts import OfferedFacts
from inferd.wire.responses import (
    Alternative,
    BlockFrame,
    BlocksDone,
    EncodeUsage,
    ErrorFrame,
    Logprob,
    ModelsFrame,
    ProgressFrame,
    RankedDocument,
    RerankFrame,
    Response,
    TextDelta,
    ThinkingDelta,
    Timing,
    TokenFrame,
    ToolCall,
    UsageV2,
)
from tests.unit.wire import examples
from tools.programs import program_environ, program_python

pytestmark = [pytest.mark.slow, pytest.mark.short_version]

EXAMPLES: Final = Path(__file__).parents[2] / "protocol" / "examples"
REQUESTS: Final = {
    "GenerateRequest": examples.TEXT,
    "BlocksRequest": examples.BLOCKS,
    "EmbedRequest": examples.EMBED,
    "RerankRequest": examples.RERANK,
    "CancelLine": examples.CANCEL,
    "Command": examples.COMMAND,
    "AppendLine": examples.APPEND,
}
TIMING: Final = Timing(
    queued_ms=0.5,
    prefill_ms=1.0,
    first_token_ms=1.5,
    decode_ms=2.0,
    total_ms=3.0,
    tokens_per_second=4.0,
    arrived_ns=1795539762133016151,
    started_ns=1795539762145292841,
    finished_ns=1795539762146761954,
)
FACTS: Final = OfferedFacts(
    backend="m",
    aliases=["a"],
    state="ready",
    generate=True,
    embed=False,
    rerank=False,
    tools=True,
    thinking=True,
    vision=False,
    audio=False,
    structure=True,
    n_ctx=2048,
)
LETTER: Final = "a"
LOGPROB: Final = Logprob(
    token=LETTER,
    id=5,
    bytes=[97],
    logprob=-0.5,
    top_logprobs=[Alternative(token=LETTER, id=5, bytes=[97], logprob=-0.5)],
)
FRAMES: Final[dict[str, Response]] = {
    "TokenFrame": TokenFrame(id="a", content="é"),
    "BlockFrame": BlockFrame(id="a", block=TextDelta(" a"), logprobs=[LOGPROB]),
    "ProgressFrame": ProgressFrame(id="a", status="queued", position=1),
    "BlocksDone": BlocksDone(
        id="a", stop_reason="end_turn", usage=UsageV2(1, 2), timing=TIMING, backend="m"
    ),
    "ErrorFrame": ErrorFrame(
        id="a", code=ErrorCode.MODEL_NOT_FOUND, message="no", models=["m"]
    ),
    "ModelsFrame": ModelsFrame(id="a", models=[FACTS]),
    "RerankFrame": RerankFrame(
        id="a",
        results=[RankedDocument(0, 0.5)],
        usage=EncodeUsage(3),
        model="m",
        backend="m",
    ),
}
BLOCKS: Final = (
    BlockFrame(id="a", block=ThinkingDelta("hm")),
    BlockFrame(id="a", block=ToolCall("c", "add", {"a": [1, None]})),
)


def run(folder: Path, *command: str, **environ: str) -> str:
    own = {"GOCACHE": str(folder / "cache"), "HOME": str(folder)}
    done = subprocess.run(
        command,
        cwd=folder,
        env={**program_environ(), **own, **environ},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    return done.stdout + done.stderr if done.returncode else ""


def typed_values() -> list[tuple[str, Any]]:
    sent = [(name, json.loads(line)) for name, line in REQUESTS.items()]
    told = [(name, json.loads(encode(frame))) for name, frame in FRAMES.items()]
    return [
        *sent,
        *told,
        *(("BlockFrame", json.loads(encode(each))) for each in BLOCKS),
    ]


def test_typescript_takes_each_message_and_no_other_field(tmp_path: Path):
    python = program_python("types")
    modules = python.parents[1] / "node_modules"
    (tmp_path / "frames.d.ts").write_text(
        (EXAMPLES / "node" / "frames.d.ts").read_text()
    )
    lines = ['import * as types from "./frames";']
    for number, (name, value) in enumerate(typed_values()):
        text = json.dumps(value)
        lines.append(f"const v{number}: types.{name} = {text};\nvoid v{number};")
        if name in FRAMES:
            lines.append(f"const f{number}: types.AnyFrame = {text};\nvoid f{number};")
    lines.append(
        """
export function show(frame: types.AnyFrame): string {
  switch (frame.type) {
    case "frame":
      return frame.block.type === "tool_use" ? frame.block.name : frame.block.delta;
    case "error":
      return `${frame.code}: ${frame.message}`;
    default:
      return frame.type ?? "";
  }
}"""
    )
    program = tmp_path / "program.ts"
    program.write_text("\n".join(lines))
    compiler = str(modules / "typescript" / "bin" / "tsc")
    options = ("--noEmit", "--strict", "--noUnusedLocals", "--target", "es2022")
    node = str(python.parent / "node")
    assert run(tmp_path, node, compiler, *options, str(program)) == ""
    program.write_text(
        program.read_text()
        + '\nexport const wrong: types.CancelLine = { type: "cancel", id: 1 };\n'
    )
    assert "TS2322" in run(tmp_path, node, compiler, *options, str(program))


GO_PROGRAM: Final = """package main

import (
	"encoding/json"
	"fmt"
	"os"
	"strings"
)

func read(text string, into any) {
	decoder := json.NewDecoder(strings.NewReader(text))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(into); err != nil {
		fmt.Println(err, text)
		os.Exit(1)
	}
	written, _ := json.Marshal(into)
	fmt.Println(string(written))
}

func main() {
%s}
"""


def test_go_reads_and_writes_each_message_and_no_other_field(tmp_path: Path):
    values = typed_values()
    calls = [
        f"\tread({json.dumps(json.dumps(each))}, &{name}{{}})\n"
        for name, each in values
    ]
    (tmp_path / "program.go").write_text(GO_PROGRAM % "".join(calls))
    (tmp_path / "frames.go").write_text((EXAMPLES / "go" / "frames.go").read_text())
    assert run(tmp_path, "go", "vet", "program.go", "frames.go") == ""
    done = subprocess.run(
        ["go", "run", "program.go", "frames.go"],
        cwd=tmp_path,
        env={**program_environ(), "GOCACHE": str(tmp_path / "cache"), "HOME": "/"},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    for (_, value), line in zip(values, done.stdout.splitlines(), strict=True):
        written = json.loads(line)
        assert {key: value.get(key) for key in written} == written
        assert {key for key in value if value[key] not in (False, "", 0)} <= {*written}


def test_types_of_each_message_are_there():
    for name in ("node/frames.d.ts", "go/frames.go"):
        text = (EXAMPLES / name).read_text()
        for defined in (*REQUESTS, *FRAMES, "EmbeddingsFrame", "DoneFrame", "Reply"):
            assert re.search(
                rf"^(export interface|type) {defined} ", text, re.MULTILINE
            )
