"""Give a cross-encoder its second segment, which llama.cpp does not know.

BERT adds one of two vectors to each token: the first to those of the query, the second
to those of the document. llama.cpp adds the first to all, and scores suffer badly. So
the table of tokens is there twice, the second time with the difference between the two
vectors added. In the document, and in the separator behind it, a token's id is the usual
one plus the offset that the header gives.
"""

from dataclasses import replace
from typing import Final

import numpy as np

from .bert import Bert

_TOKENS: Final = "embeddings.word_embeddings.weight"
_SEGMENTS: Final = "embeddings.token_type_embeddings.weight"


def with_second_segment(model: Bert) -> Bert:
    """Add the tokens of the second segment."""
    tokens, segments = model.tensors[_TOKENS], model.tensors[_SEGMENTS]
    both = np.concatenate([tokens, tokens + (segments[1] - segments[0])])
    return replace(model, tensors={**model.tensors, _TOKENS: both}, n_segments=2)
