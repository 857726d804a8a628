"""ggml's tensor types and their sizes."""

from typing import Final

_K: Final = 256
BLOCKS: Final = {
    0: (1, 4),  # F32
    1: (1, 2),  # F16
    2: (32, 18),  # Q4_0
    3: (32, 20),  # Q4_1
    6: (32, 22),  # Q5_0
    7: (32, 24),  # Q5_1
    8: (32, 34),  # Q8_0
    10: (_K, 84),  # Q2_K
    11: (_K, 110),  # Q3_K
    12: (_K, 144),  # Q4_K
    13: (_K, 176),  # Q5_K
    14: (_K, 210),  # Q6_K
    16: (_K, 66),  # IQ2_XXS
    17: (_K, 74),  # IQ2_XS
    18: (_K, 98),  # IQ3_XXS
    19: (_K, 50),  # IQ1_S
    20: (32, 18),  # IQ4_NL
    21: (_K, 110),  # IQ3_S
    22: (_K, 82),  # IQ2_S
    23: (_K, 136),  # IQ4_XS
    24: (1, 1),  # I8
    25: (1, 2),  # I16
    26: (1, 4),  # I32
    27: (1, 8),  # I64
    28: (1, 8),  # F64
    29: (_K, 56),  # IQ1_M
    30: (1, 2),  # BF16
    34: (_K, 54),  # TQ1_0
    35: (_K, 66),  # TQ2_0
    39: (32, 17),  # MXFP4
    40: (64, 36),  # NVFP4
    41: (128, 18),  # Q1_0
}
"""Elements and bytes of a block, by tensor type: those of ggml's types that weights in
files have. A test compares them with the library and with ``gguf``."""
