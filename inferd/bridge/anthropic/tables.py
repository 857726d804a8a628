"""The fields of Anthropic's requests, and what becomes of each."""

from typing import Final

from inferd.bridge.translation.fields import FieldTable, honoured, ignored, refused

_BETA: Final = ignored(
    "beta",
    note="As the SDK sends it; what a beta adds is a field, and refused by name.",
)
QUERY: Final = FieldTable("Query parameters of all routes", _BETA)
MODELS_QUERY: Final = FieldTable(
    "Query parameters of GET /v1/models",
    (
        *honoured("limit", note="1 to 1,000, which is the default here."),
        *honoured(
            *("after_id", "before_id"),
            note="The page begins behind the model of this name, or ends before it; one of "
            "both.",
        ),
        *_BETA,
    ),
)
_PROMPT: Final = (
    *honoured(
        "model",
        note="A name or an alias that `/v1/models` lists; without it, the first that can.",
    ),
    *honoured(
        "messages",
        note="Of text, pictures, calls and their results, which may have pictures as well; "
        "earlier reasoning is not repeated to the model. A result with `is_error` begins "
        "with `Error: `. The source of a picture is `base64`; `url` and `file` are refused, "
        "since the bridge fetches and stores nothing. A model that takes no pictures "
        "refuses them with 400. Documents and results of searches are refused.",
    ),
    *honoured(
        "system",
        note="A text or blocks of text. A first line that begins with "
        "`x-anthropic-billing-header:` is left out: it changes with each turn, and the "
        "cached beginning of the prompt would be lost.",
    ),
    *honoured(
        "tools",
        note="With an `input_schema`; others are refused. Calls are held to their schemas "
        "where `tool_choice` forces a call or `output_config` has a `format`, `strict` or "
        "not; else one is as the model writes it, and the header `x-inferd-unenforced` of "
        "the answer lists the tools that are `strict`. "
        "`input_examples` are added to the description; `defer_loading` and "
        "`eager_input_streaming` are ignored.",
    ),
    *honoured(
        "tool_choice",
        note="Enforced while the answer is generated; `disable_parallel_tool_use` ends it "
        "with the first call.",
    ),
    *honoured(
        "thinking",
        note="`enabled` asks for reasoning, and is refused with 400 where the model has none; "
        "`budget_tokens` is no bound of its own beside `max_tokens`. `adaptive` leaves it "
        "to the model: one that is named reasons if it can; `display` may be `omitted`.",
    ),
    *honoured(
        "output_config",
        note="`format` is enforced while the answer is generated; `effort` is ignored.",
    ),
    *ignored(
        "cache_control",
        note="Here and in blocks and tools: every prefix is cached in any case, and "
        "`cache_read_input_tokens` says how much of one was.",
    ),
    *ignored(
        "context_management",
        note="Nothing is removed from a conversation: one that does not fit is refused.",
    ),
    *ignored(
        "user_profile_id", "workspace_id", note="Who asks follows from the token."
    ),
    *refused("speed", note="there is one speed", neutral=("standard",)),
    *refused("mcp_servers", note="the bridge calls no tools", neutral=([],)),
)

MESSAGES: Final = FieldTable(
    "POST /v1/messages",
    (
        *_PROMPT,
        *honoured(
            "max_tokens",
            note="0 computes the prompt, for the cache, and generates nothing.",
        ),
        *honoured("temperature", "top_p", "top_k"),
        *honoured(
            "stop_sequences", note="At most 16; they are left out of the answer."
        ),
        *honoured("stream"),
        *honoured(
            "keep_alive", note="An addition: seconds, as `keep_alive_s` of the daemon."
        ),
        *ignored("metadata", note="Nothing is stored."),
        *ignored("service_tier", note="There is one tier."),
        *ignored("diagnostics", note="The daemon's log says why a cache was missed."),
        *refused("inference_geo", note="answers are generated where the daemon runs"),
        *refused("container", note="the bridge runs no code"),
        *refused(
            "thread",
            note="no conversation is held; the SDK's tool runner, which asks for it, then "
            "sends all of it with each turn",
        ),
        *refused("output_format", note="use output_config.format"),
    ),
)

COUNT_TOKENS: Final = FieldTable("POST /v1/messages/count_tokens", _PROMPT)
