"""Bounds of model files, whose headers are checked before a library reads them. F-26."""

from typing import Final

GGUF_TENSORS: Final = 100_000
"""Tensors of one file; the largest models in use have some thousands. F-26."""

GGUF_KEYS: Final = 10_000
"""Keys of one header; most have some dozens. F-26."""

GGUF_NAME_BYTES: Final = 65_535
"""Bytes of a key: the format's own bound. F-26."""

GGUF_TEXT_BYTES: Final = 64 * 1024 * 1024
"""Bytes of one string in a header; some hold a whole tokeniser as JSON. F-26."""

GGUF_ARRAY_TEXTS: Final = 4_000_000
"""Strings in all arrays of a header, which are read one by one, in 0.2 µs each. The largest
vocabulary in use has 0.8 million, merges included. F-26."""

GGUF_ARRAY_NUMBERS: Final = 65_536
"""Numbers of an array about the model's layers or pictures; most have some hundred. F-26."""

GGUF_CONTEXT_TOKENS: Final = 2**27
"""Largest context or attention window in a header: thirteen times the largest in use,
10,485,760. It bounds all integers about a model that have no other bound. F-26."""

GGUF_CONTEXT_TOKENS_MIN: Final = 8
"""Smallest context in a header, and smallest ``n_ctx``. F-26."""

GGUF_LAYERS: Final = 512
"""Layers of a model, llama.cpp's own bound, above which it aborts the process; the largest
models in use have 130. F-26."""

GGUF_EXPERTS: Final = 1024
"""Experts of a layer, llama.cpp's own bound. F-26."""

GGUF_WIDTH: Final = 2**18
"""Size of an embedding; 20,000 in the largest models in use. It is multiplied with the numbers
of heads and states in 32 bits. F-26."""

GGUF_INNER_WIDTH: Final = 2**24
"""Size of a feed-forward layer. F-26."""

GGUF_HEADS: Final = 4096
"""Attention heads of a layer; 128 in the largest models in use. F-26."""

GGUF_HEAD_WIDTH: Final = 2**14
"""Size of an attention head or of a state; 576 in the largest models in use. F-26."""

GGUF_ALIGNMENT_BYTES: Final = 65_536
"""Largest alignment of tensors; usually 32. F-26."""

MODEL_PARTS: Final = 256
"""Files of one split model: each is held open. F-26."""

WHISPER_TEXT_BYTES: Final = 1024
"""Bytes of one token in a whisper model's vocabulary; the longest in use has 33. F-26."""

SHOWN_TEXT_BYTES: Final = 256
"""Bytes of a name or licence in a header that is shown; a longer one is no name. F-26."""

SHOWN_TEMPLATE_BYTES: Final = 1024 * 1024
"""Bytes of a chat template whose family is looked for; the longest in use has 20 kB. F-26."""
