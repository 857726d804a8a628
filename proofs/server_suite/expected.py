"""What of the suite is left out or differs, each with the reason."""

from collections.abc import Mapping
from typing import Final, NamedTuple

FILES: Final = (
    *("basic", "chat_completion", "security", "embedding", "compat_anthropic"),
    *("rerank", "tool_call", "compat_oai_responses", "tokenize", "completion"),
)
"""Of those of the suite, the ones about routes that the bridge has."""
ONE_FORM: Final = "not test_completion.py or openai_library"
"""Of the last of them, the cases in OpenAI's form; the others ask to continue a bare text."""


class LeftOut(NamedTuple):
    """Assertions of a file that are not made; the others of their cases are."""

    file: str
    fragment: str
    """What is in their lines."""
    reason: str
    functions: tuple[str, ...] = ()
    """Functions of tests that make them, where it is not they that contain them."""


_THEIR_TOKENS: Final = "number of tokens of their model"
_THEIR_BUILD: Final = "number of their build, in a field that is optional"
_EMPTY_TEXT: Final = "OpenAI's own streams begin with an empty text, not with `null`"
LEFT_OUT: Final = (
    LeftOut(
        "unit/test_chat_completion.py",
        "system_fingerprint",
        _THEIR_BUILD,
    ),
    LeftOut(
        "unit/test_chat_completion.py", '["prompt_tokens"] == n_prompt', _THEIR_TOKENS
    ),
    LeftOut(
        "unit/test_chat_completion.py",
        '["completion_tokens"] == n_predicted',
        _THEIR_TOKENS,
    ),
    LeftOut(
        "unit/test_chat_completion.py",
        '["finish_reason"] == finish_reason',
        _THEIR_TOKENS,
    ),
    LeftOut("unit/test_completion.py", "system_fingerprint", _THEIR_BUILD),
    LeftOut(
        "unit/test_chat_completion.py",
        'data["model"] == "llama-test-model"',
        "the request names no model, and a stream begins before it is known which answers",
    ),
    LeftOut(
        "unit/test_chat_completion.py", '["delta"]["content"] is None', _EMPTY_TEXT
    ),
    LeftOut(
        *("utils.py", "Expected non empty content delta", _EMPTY_TEXT),
        functions=("unit/test_tool_call.py::test_completion_without_tool_call_fast",),
    ),
    LeftOut(
        "unit/test_chat_completion.py", "choice.delta.content is None", _EMPTY_TEXT
    ),
    LeftOut("unit/test_rerank.py", "['prompt_tokens'] == n_tokens", _THEIR_TOKENS),
)
THEIR_TEXTS: Final = (
    *("But she couldn't", '(Suddenly)+|\\{ " Sarax.', "(Suddenly)+", "^ blue"),
    *("(Aside|she|felter|alonger)+", "Whillicter", "(little|girl)+"),
    *("(going|bed)+", "(He|Mom|Lily|Timmy|Once)+", "[ -3000 ]"),
)
"""Expressions for texts that their model writes."""

_NO_ROUTE: Final = "the daemon offers no such route: it tells nobody its requests, and writes and tokenises prompts itself"
_NO_PAGE: Final = "a page of another origin is refused with 403 (F-50); the other server lets pages of all origins ask"
_ONE_KIND_OF_INPUT: Final = "embeddings are of texts or of tokens: both in one array, an empty text and parts are refused with the field at fault"
_NO_PICTURES: Final = (
    "pictures are refused with 400, in other words than the other server's 500"
)
_NO_TELEMETRY: Final = "telemetry of the other server; an unknown field is refused"
_NO_REASONING: Final = (
    "earlier reasoning is not repeated, and a model without reasoning refuses to reason"
)
_TEMPLATES: Final = (
    "the template of a prompt follows from the model, and no answer shows a prompt"
)
_OVERFLOW: Final = "a prompt that does not fit has OpenAI's code, `context_length_exceeded`, and other words"
DIFFERS: Final[Mapping[str, str | None]] = {
    "test_basic.py::test_server_multiple_addresses": "the bridge listens at one address",
    "test_basic.py::test_server_props": _NO_ROUTE,
    "test_basic.py::test_server_slots": _NO_ROUTE,
    "test_basic.py::test_load_split_model": "a model of theirs, and a bare text to continue",
    "test_basic.py::test_no_ui": "the bridge has no such page",
    "test_basic.py::test_server_model_aliases_and_tags": "each alias is an entry of the list of models, as clients expect that look a name up; there are no tags",
    "test_chat_completion.py::test_chat_completion_cached_tokens": "numbers of tokens of their model and of its cache",
    "test_chat_completion.py::test_chat_template": _TEMPLATES,
    "test_chat_completion.py::test_chat_template_continue_final_message_vllm": _TEMPLATES,
    "test_chat_completion.py::test_chat_template_continue_final_message_mutual": None,
    "test_chat_completion.py::test_apply_chat_template": _NO_ROUTE,
    "test_chat_completion.py::test_verbose_debug": _TEMPLATES,
    "test_chat_completion.py::test_invalid_chat_completion_req[messages7]": "two answers one after the other are a conversation for the daemon, as for OpenAI",
    "test_chat_completion.py::test_chat_completion_with_timings": _NO_TELEMETRY,
    "test_chat_completion.py::test_return_progress": _NO_TELEMETRY,
    "test_chat_completion.py::test_logit_bias": "asks `/tokenize` first",
    "test_chat_completion.py::test_context_size_exceeded": _OVERFLOW,
    "test_chat_completion.py::test_chat_completions_multiple_choices": "one choice is made of a request; `n` is refused",
    "test_chat_completion.py::test_chat_completions_token_count": "only Anthropic's API has a route to count tokens",
    "test_security.py::test_access_static_assets": "the bridge has no such page",
    "test_security.py::test_correct_api_key": "the token is accepted; `/completions` answers in OpenAI's form, not in the other server's own",
    "test_security.py::test_cors_options[origin-Access-Control-Allow-Credentials": "tokens come in a header, and no cookie is used",
    "test_security.py::test_cors_options[web.mydomain.fr-Access-Control-Allow-Headers": "`Authorization` has to be named: a `*` does not stand for it",
    "test_security.py::test_cors_origins_localhost_rejects": _NO_PAGE,
    "test_security.py::test_cors_origins_defaults_to_localhost": _NO_PAGE,
    "test_security.py::test_cors_proxy": "the bridge is no proxy",
    "test_security.py::test_local_media_file[../../../tools-file://mtmd/test-1.jpeg-True]": "no file of the server's disk is read for a client",
    "test_security.py::test_local_media_file[../../../tools-file:////mtmd//test-1.jpeg-True]": "no file of the server's disk is read for a client",
    **{
        f"test_embedding.py::test_embedding_mixed_input[{case}]": _ONE_KIND_OF_INPUT
        for case in (
            "-False",
            *(f"input{number}-False" for number in (3, 8, 9)),
            *(f"input{number}-True" for number in (5, 7, 10)),
        )
    },
    "test_embedding.py::test_embedding_content_text_same_as_string": _ONE_KIND_OF_INPUT,
    "test_embedding.py::test_embedding_pooling_none": "a text has one vector, whatever the route",
    "test_embedding.py::test_embedding_error_prompt_too_long": _OVERFLOW,
    "test_compat_anthropic.py::test_anthropic_tool_result_with_image": _NO_PICTURES,
    "test_compat_anthropic.py::test_anthropic_vision": _NO_PICTURES,
    "test_compat_anthropic.py::test_anthropic_empty_messages": "no messages are refused, as Anthropic does",
    "test_compat_anthropic.py::test_anthropic_thinking": _NO_REASONING,
    "test_compat_oai_responses.py::test_responses_stream_with_llama": _NO_TELEMETRY,
    "test_tokenize.py": _NO_ROUTE,
}
"""Why cases differ, by how their names begin; of several the longest counts."""


def reason_of(case: str) -> str | None:
    """Return why a case differs, if it is known to."""
    matches = [start for start in DIFFERS if case.startswith(f"unit/{start}")]
    return DIFFERS[max(matches, key=len)] if matches else None
