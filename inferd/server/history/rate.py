"""How fast the tokens of an answer came; pure."""


def tokens_per_second(n_tokens: int, n_first: int, decode_s: float) -> float:
    """Return the tokens a second that came after the first ones; 0 where there were none.

    Args:
        n_tokens: of the answer.
        n_first: of these, how many came at once with the first, as those that a grammar
            leaves no choice of: they took no time of their own.
        decode_s: seconds from the first token to the end.
    """
    n_later = n_tokens - max(1, n_first)
    return round(n_later / decode_s, 3) if n_later > 0 and decode_s > 0 else 0.0
