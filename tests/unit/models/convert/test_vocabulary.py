import gguf
import pytest

from inferd.models.convert.vocabulary import add_vocabulary, read_vocabulary

PIECES = [
    "[PAD]",
    "[unused0]",
    "[UNK]",
    "[CLS]",
    "[SEP]",
    "[MASK]",
    "a",
    "##a",
    "#",
    "",
]


@pytest.fixture
def header(tmp_path):
    def header(pieces, n_segments=1):
        path = tmp_path / "vocabulary.gguf"
        writer = gguf.GGUFWriter(path, "bert")
        add_vocabulary(writer, pieces, n_segments=n_segments)
        writer.write_header_to_file()
        writer.write_kv_data_to_file()
        writer.close()
        prefix = "tokenizer.ggml."
        return {
            name.removeprefix(prefix): field.contents()
            for name, field in gguf.GGUFReader(path).fields.items()
            if name.startswith(prefix)
        }

    return header


@pytest.mark.parametrize("end", ["", "\n"])
def test_a_line_is_a_piece_whatever_is_in_it(tmp_path, end):
    path = tmp_path / "vocab.txt"
    path.write_text("[PAD]\n\u2028\n##\x85é" + end, encoding="utf-8")
    assert read_vocabulary(path) == ["[PAD]", "\u2028", "##\x85é"]


def test_pieces_that_begin_a_word_have_a_phantom_space(header):
    tokens = header(PIECES)["tokens"]
    assert tokens[5:] == ["[MASK]", "▁a", "a", "▁#", "▁"]
    assert tokens[1] == "▁[unused0]"


def test_special_tokens_are_control_tokens_and_known_by_their_ids(header):
    fields = header(PIECES)
    control = [n for n, kind in enumerate(fields["token_type"]) if kind == 3]
    assert control == [0, 2, 3, 4, 5]
    roles = ("padding", "unknown", "bos", "eos", "seperator", "mask")
    assert [fields[f"{role}_token_id"] for role in roles] == [0, 2, 3, 4, 4, 5]
    assert (fields["model"], fields["pre"]) == ("bert", "default")


def test_the_ids_of_a_second_segment_have_texts_that_no_word_can_have(header):
    tokens = header(PIECES, n_segments=2)["tokens"]
    n_pieces = len(PIECES)
    second = tokens[n_pieces:]
    assert len(second) == n_pieces
    assert len({*tokens}) == 2 * n_pieces
    assert all(" " in token for token in second)
    assert header(PIECES, n_segments=2)["token_type"][n_pieces:] == [5] * n_pieces


def test_a_vocabulary_without_its_special_tokens_is_refused(header):
    with pytest.raises(ValueError, match="MASK"):
        header(PIECES[:5])
