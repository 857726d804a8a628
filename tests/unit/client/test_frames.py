import msgspec
import pytest

from inferd.client.frames import (
    ClientAnswerWarning,
    ClientBlocksDone,
    ClientDoneFrame,
    ClientErrorFrame,
)
from inferd.wire.responses import AnswerWarning, BlocksDone, DoneFrame, ErrorFrame
from tests.cases import each_case

WIDER = [
    (ClientErrorFrame, ErrorFrame),
    (ClientDoneFrame, DoneFrame),
    (ClientBlocksDone, BlocksDone),
    (ClientAnswerWarning, AnswerWarning),
]


@each_case(("ours", "wires"), WIDER)
def test_a_frame_has_the_fields_of_the_wire_and_no_other(ours, wires):
    assert issubclass(ours, wires)
    assert ours.__struct_fields__ == wires.__struct_fields__
    assert ours.__struct_config__.tag == wires.__struct_config__.tag


@pytest.mark.parametrize(
    ("frame", "fields"),
    [
        (ClientErrorFrame, {"id": "r", "code": "news", "message": "m", "n_ctx": 8}),
        (
            ClientDoneFrame,
            {
                "id": "r",
                "content": "",
                "stop_reason": "news",
                "backend": "b",
                "usage": {"prompt_tokens": 1, "completion_tokens": 2},
            },
        ),
        (
            ClientBlocksDone,
            {
                "id": "r",
                "stop_reason": "news",
                "backend": "b",
                "detail": "news",
                "usage": {"input_tokens": 1, "output_tokens": 2},
                "warnings": [{"code": "news", "raw": ""}],
            },
        ),
    ],
)
def test_what_a_later_daemon_may_say_is_read_as_it_is(frame, fields):
    read = msgspec.convert({"type": frame.__struct_config__.tag, **fields}, frame)
    again = msgspec.to_builtins(read)
    again.get("usage", {}).pop("cached_tokens", None)
    assert again == {"type": frame.__struct_config__.tag, **fields}
