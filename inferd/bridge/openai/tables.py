"""The fields of OpenAI's requests, and what becomes of each."""

from typing import Final

from inferd.bridge.translation.fields import FieldTable, honoured, ignored, refused

_SAMPLING: Final = (
    *honoured("temperature", "top_p", "presence_penalty", "frequency_penalty"),
    *honoured("seed", note="0 to 4,294,967,294."),
    *honoured("stop", note="At most 16 strings; they are left out of the answer."),
    *honoured("logit_bias", note="At most 1,024 tokens."),
    *honoured("top_k", "min_p", "repeat_penalty", note="An addition, as llama.cpp's."),
    *honoured("min_tokens", note="An addition, as vLLM's; at most `max_tokens`."),
    *honoured(
        "keep_alive", note="An addition: seconds, as `keep_alive_s` of the daemon."
    ),
    *refused("n", note="only 1 choice is made of a request", neutral=(1,)),
)
_WHO: Final = (
    *ignored(
        "user", "safety_identifier", note="Whose request it is follows from the token."
    ),
    *ignored("metadata", note="Nothing is stored."),
    *ignored(
        *("prompt_cache_key", "cache_prompt"), note="Prompts are cached in any case."
    ),
    *refused(
        *("prompt_cache_retention", "prompt_cache_options"),
        note="caches are the daemon's own affair",
    ),
)
_STREAM: Final = (
    *honoured("stream"),
    *honoured("stream_options", note="`include_usage`; needs `stream`."),
)
_MODEL: Final = honoured(
    "model",
    note="A name or an alias that `/v1/models` lists; without it, the first that can.",
)

_ANY_VERSION: Final = ignored(
    "api-version", note="As Azure's clients send it; there is one version."
)
QUERY: Final = FieldTable("Query parameters of all routes", _ANY_VERSION)
MODELS_QUERY: Final = FieldTable(
    "Query parameters of GET /v1/models",
    (
        *honoured("after", note="The list begins behind the model of this name."),
        *honoured("limit", note="At most so many models, 1 to 1,000; all unless set."),
        *_ANY_VERSION,
    ),
)

CHAT: Final = FieldTable(
    "POST /v1/chat/completions",
    (
        *_MODEL,
        *honoured(
            "messages",
            note="Of text, pictures, recordings, calls and their results. An `image_url` "
            "has the picture in it (`data:…;base64,…`), since the bridge fetches nothing; "
            "its `detail` is ignored, and pictures are not scaled for it. `input_audio` "
            "is a wav or mp3 file. A model that takes none refuses them with 400, and "
            "parts of type `file` are refused.",
        ),
        *honoured("max_tokens", "max_completion_tokens", note="At least 1."),
        *_SAMPLING,
        *_STREAM,
        *honoured(
            "tools",
            note="Functions. Calls are held to their schemas where `tool_choice` forces a "
            "call or `response_format` is JSON, `strict` or not; else one is as the model "
            "writes it, and the header `x-inferd-unenforced` of the answer lists the tools "
            "that are `strict`.",
        ),
        *honoured("tool_choice", note="Enforced while the answer is generated."),
        *honoured(
            "parallel_tool_calls", note="`false`: the answer ends with the first call."
        ),
        *honoured("response_format", note="Enforced while the answer is generated."),
        *honoured(
            *("json_schema", "grammar"),
            note="An addition, as llama.cpp's: a schema, or GBNF, instead of "
            "`response_format`.",
        ),
        *honoured("logprobs"),
        *honoured("top_logprobs", note="0 to 20; needs `logprobs`."),
        *honoured(
            "reasoning_effort",
            note="`none` and `minimal` switch reasoning off, all others on alike; refused "
            "with 400 where the model does not reason.",
        ),
        *_WHO,
        *refused(
            "service_tier",
            note="there is one tier, default",
            neutral=("auto", "default"),
        ),
        *refused("store", note="nothing is stored", neutral=(False,)),
        *refused("modalities", note="answers are text alone", neutral=(["text"],)),
        *refused(
            "verbosity", note="only medium, which is the default", neutral=("medium",)
        ),
        *refused("audio", note="answers are text alone"),
        *refused("prediction", note="predicted outputs are not supported"),
        *refused("moderation", note="nothing is moderated"),
        *refused("web_search_options", note="there is no search"),
        *refused("functions", "function_call", note="use tools and tool_choice"),
    ),
)

COMPLETIONS: Final = FieldTable(
    "POST /v1/completions",
    (
        *_MODEL,
        *honoured(
            "prompt",
            note="One text, which becomes one message of a user: the daemon writes the "
            "prompt in the form of the model's family, and continues no bare text. Or an "
            "array of tokens, which are the whole prompt: ids of the model's own vocabulary.",
        ),
        *honoured("max_tokens", note="At least 1; 16 unless set, as in OpenAI's API."),
        *_SAMPLING,
        *_STREAM,
        *ignored("user", note="Whose request it is follows from the token."),
        *refused("best_of", note="only 1 answer is made of a request", neutral=(1,)),
        *refused("echo", note="the prompt is not repeated", neutral=(False,)),
        *refused("logprobs", note="use /v1/chat/completions"),
        *refused("suffix", note="there is no text to insert into", neutral=("",)),
    ),
)

EMBEDDINGS: Final = FieldTable(
    "POST /v1/embeddings",
    (
        *_MODEL,
        *honoured(
            "input",
            note="A text, an array of texts, an array of tokens, or an array of such arrays. "
            "Tokens are ids of the model's own vocabulary, with the special tokens that it puts "
            "around a text; those of another tokenizer, such as tiktoken's, stand for other "
            "words.",
        ),
        *honoured(
            "dimensions", note="The first numbers of each vector, scaled to length 1."
        ),
        *honoured("encoding_format", note="`float` or `base64`."),
        *honoured("task", note="An addition, as `task` of the daemon."),
        *ignored("user", note="Whose request it is follows from the token."),
    ),
)

RERANK: Final = FieldTable(
    "POST /v1/rerank",
    (
        *_MODEL,
        *honoured("query"),
        *honoured(
            "documents",
            note="Texts, or objects with a `text`. A `relevance_score` is as the model computes "
            "it, which need not be between 0 and 1, unless `raw_scores` is `false`.",
        ),
        *honoured(
            "texts",
            note="An addition, instead of `documents`: the answer then has the form of Text "
            "Embeddings Inference, an array of `index` and `score`.",
        ),
        *honoured("top_n"),
        *honoured("return_documents", note="Default false; needs `documents`."),
        *honoured("return_text", note="The same for `texts`."),
        *ignored("user", note="Whose request it is follows from the token."),
        *ignored(
            *("truncation", "truncate", "truncation_direction"),
            note="What does not fit in the context is refused with the numbers, and never cut.",
        ),
        *refused(
            "max_chunks_per_doc", "overlap_tokens", note="documents are not split"
        ),
        *refused("max_tokens_per_doc", note="documents are not cut"),
        *refused("priority", note="the daemon shares its queue", neutral=(0,)),
        *refused("return_embeddings", note="use /v1/embeddings", neutral=(False,)),
        *honoured(
            "raw_scores",
            note="`true`: scores as the model computes them; `false`: their sigmoid, between "
            "0 and 1. Default `false` with `texts`, as Text Embeddings Inference has it, and "
            "`true` with `documents`.",
        ),
        *refused("rank_fields", note="only text is ranked", neutral=(["text"],)),
    ),
)
