"""Counts of tokens in OpenAI's form."""

from inferd.wire.responses import UsageV2


def usage_of(usage: UsageV2) -> dict[str, object]:
    """Return the usage of a chat or a completion."""
    return {
        "prompt_tokens": usage.input_tokens,
        "completion_tokens": usage.output_tokens,
        "total_tokens": usage.input_tokens + usage.output_tokens,
        "prompt_tokens_details": {"cached_tokens": usage.cached_tokens},
    }


def prompt_usage(n_tokens: int) -> dict[str, int]:
    """Return the usage of a request that generates nothing."""
    return {"prompt_tokens": n_tokens, "total_tokens": n_tokens}
