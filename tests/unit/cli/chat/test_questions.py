from types import SimpleNamespace
from typing import Any

import pytest

from inferd.chats.records import ChatSampling, KeptMessage, WorkParameters
from inferd.cli.chat.questions import attach, conversation_of, takes
from inferd.cli.console import CommandError
from inferd.client.core.offers import ServedFacts
from inferd.wire.blocks import ImageBlock, TextBlock
from tests.cases import each_case
from tests.media_files import png_file, wav_file


def served(*can: str) -> ServedFacts:
    return ServedFacts(name="a", aliases=(), state="ready", can=frozenset(can))


def test_a_model_takes_what_it_says_and_one_that_is_unknown_may():
    assert takes(served("vision"), "picture")
    assert not takes(served("vision"), "sound")
    assert takes(served("audio"), "sound")
    assert takes(None, "picture")


def test_a_file_is_attached_by_what_it_is_and_not_by_its_name(tmp_path):
    picture, sound = tmp_path / "a\x1b.wav", tmp_path / "b.png"
    picture.write_bytes(png_file())
    sound.write_bytes(wav_file())
    pending = attach(picture, "picture")
    assert (pending.kept.name, pending.kept.media_type) == ("a_.wav", "image/png")
    assert attach(sound, "sound").kept.n_bytes == sound.stat().st_size
    with pytest.raises(CommandError, match="not a picture"):
        attach(sound, "picture")


@each_case(("data", "told"), [(b"", "bytes are taken"), (b"text", "not a picture")])
def test_what_is_no_picture_is_refused(tmp_path, data, told):
    path = tmp_path / "x"
    path.write_bytes(data)
    with pytest.raises(CommandError, match=told):
        attach(path, "picture")
    with pytest.raises(CommandError, match="No such file"):
        attach(tmp_path / "absent", "picture")


def test_files_are_sent_in_their_order_and_those_that_have_changed_are_named(tmp_path):
    paths = [tmp_path / name for name in ("a.png", "b.png", "c.png")]
    for path in paths:
        path.write_bytes(png_file())
    files = [attach(path, "picture").kept for path in paths]
    prompt = KeptMessage(
        id="p",
        chat_id="c",
        parent_id=None,
        role="prompter",
        state="manual",
        created_us=0,
        text="What?",
        attachments=tuple(files),
    )
    paths[1].write_bytes(b"changed")
    notes: list[str] = []
    known = {file.id: path for file, path in zip(files, paths, strict=True)}
    state: Any = SimpleNamespace(
        conversation=SimpleNamespace(paths=known),
        facts=None,
        painter=SimpleNamespace(note=notes.append),
    )
    work = WorkParameters(model="m", sampling=ChatSampling())
    [message], sent = conversation_of(state, [prompt], work, None)
    assert message.content == [
        *(ImageBlock("1"), TextBlock("[a picture: b.png]"), ImageBlock("2")),
        TextBlock("What?"),
    ]
    assert [getattr(each, "id", None) for each in sent] == ["1", "2"]
    assert all(getattr(each, "bytes", None) for each in sent)
    assert notes == [f"({paths[1]}: has changed or is gone, and is not sent)"]
