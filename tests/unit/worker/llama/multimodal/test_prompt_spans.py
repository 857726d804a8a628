import numpy as np
from hypothesis import given, strategies as st

from inferd.worker.llama.multimodal.chunks import MediaChunk
from inferd.worker.llama.multimodal.prompt_spans import PromptMedia, interleave

TOKENS = st.lists(st.integers(0, 99), max_size=4)
PARTS = st.lists(TOKENS | st.integers(1, 5), max_size=4)


def seen(digest: bytes, *parts: list[int] | int) -> PromptMedia:
    return PromptMedia(
        digest,
        [
            MediaChunk(part, is_atomic=False) if isinstance(part, int) else part
            for part in parts
        ],
    )


def test_media_stand_between_texts_with_what_goes_before_and_behind_them():
    tokens, spans = interleave([[1, 2], [3]], [seen(b"a", [8], 2, [9])])
    assert tokens[:3] + tokens[5:] == [1, 2, 8, 9, 3]
    assert all(token < 0 for token in tokens[3:5])
    [span] = spans
    assert (span.begin, span.end) == (3, 5)


def test_a_prompt_without_media_is_its_text():
    assert interleave([[1, 2]], []) == ([1, 2], [])


def test_prompts_with_other_pictures_differ_from_the_picture_on():
    one, other = (interleave([[1], [2]], [seen(each, 3)])[0] for each in (b"a", b"b"))
    assert one[0] == other[0]
    assert one[1] != other[1]


@given(st.lists(st.tuples(st.binary(max_size=2), PARTS), max_size=3), st.data())
def test_spans_are_where_tokens_are_made_up(media, data):
    texts = [data.draw(TOKENS) for _ in range(len(media) + 1)]
    tokens, spans = interleave(texts, [seen(digest, *parts) for digest, parts in media])
    places = [place for span in spans for place in range(span.begin, span.end)]
    assert places == [place for place, token in enumerate(tokens) if token < 0]
    real = [token for token in tokens if token >= 0]
    assert len(real) == len(tokens) - sum(span.chunk.n_tokens for span in spans)


def test_vectors_of_the_same_medium_are_taken_from_another_job():
    made = seen(b"a", [1], 2, 1)
    for each in made.media_chunks:
        each.vectors = np.zeros((each.n_tokens, 3), np.float32)
    own = seen(b"a", [1], 2, 1)
    own.copy_vectors(made.chunks)
    assert [
        each.vectors is other.vectors
        for each, other in zip(own.media_chunks, made.media_chunks, strict=True)
    ] == [True, True]
