"""The fields of Ollama's requests, and what becomes of each."""

from typing import Final

from inferd.bridge.translation.fields import FieldTable, honoured, ignored, refused

_MODEL: Final = honoured(
    "model",
    note="A name or an alias that `/api/tags` lists. One without a tag is the same as with "
    "`:latest`; what the daemon itself has goes first.",
)
_KEEP_ALIVE: Final = honoured(
    "keep_alive",
    note="Seconds, or a duration such as `5m`, of a model that is loaded on demand: at most "
    "as long as the operator has configured, which is what negative ones ask for. 0 unloads "
    "the model as soon as no request uses it.",
)
_OPTIONS: Final = honoured("options", note="See the table of `options`.")
_NOTHING_CUT: Final = ignored(
    *("truncate", "shift"),
    note="What does not fit in the context is refused with the numbers, and never cut.",
)
_GENERATION: Final = (
    *_MODEL,
    *honoured("stream", note="Lines of JSON; on unless it is `false`."),
    *honoured(
        "format",
        note="`json`, or a JSON schema, which is enforced while the answer is generated.",
    ),
    *_OPTIONS,
    *honoured(
        "think",
        note="`false` switches reasoning off; `true` and a level switch it on alike, and are "
        "refused with 400 where the model does not reason. Without it the model reasons if "
        "it can.",
    ),
    *_KEEP_ALIVE,
    *honoured("logprobs"),
    *honoured("top_logprobs", note="0 to 20; needs `logprobs`."),
    *_NOTHING_CUT,
)

CHAT: Final = FieldTable(
    "POST /api/chat",
    (
        *_GENERATION,
        *honoured(
            "messages",
            note="Of text, calls and their results; `thinking` of earlier answers is not "
            "repeated to the model. `images` are base64, for a model that takes them. A result belongs to the call "
            "with its `tool_call_id`, else to the first one without a result of its "
            "`tool_name`, else to the first without one. No messages load the model.",
        ),
        *honoured("tools", note="Functions; a call is as the model writes it."),
    ),
)
GENERATE: Final = FieldTable(
    "POST /api/generate",
    (
        *_GENERATION,
        *honoured(
            "prompt", note="A message of the user; without one, the model is loaded."
        ),
        *honoured("system", note="A system message before the prompt."),
        *honoured(
            "images",
            note="Base64, before the prompt's text; for a model that takes them.",
        ),
        *refused(
            "raw",
            note="prompts are rendered in the format of the model's family",
            neutral=(False,),
        ),
        *refused(
            "template",
            note="prompts are rendered in the format of the model's family",
            neutral=("",),
        ),
        *refused("suffix", note="no text is inserted before another", neutral=("",)),
        *refused(
            "context",
            note="tokens of an earlier answer are not taken; send the conversation to "
            "/api/chat",
            neutral=([],),
        ),
        *refused(
            *("width", "height", "steps"),
            note="no pictures are generated",
            neutral=(0,),
        ),
    ),
)
EMBED: Final = FieldTable(
    "POST /api/embed",
    (
        *_MODEL,
        *honoured("input", note="A text or texts; without any, the model is loaded."),
        *honoured("dimensions"),
        *_OPTIONS,
        *_KEEP_ALIVE,
        *_NOTHING_CUT,
    ),
)
EMBEDDINGS: Final = FieldTable(
    "POST /api/embeddings",
    (
        *_MODEL,
        *honoured(
            "prompt",
            note="A text, whose vector has length 1, as that of `/api/embed`; without one, "
            "the model is loaded.",
        ),
        *_OPTIONS,
        *_KEEP_ALIVE,
    ),
)
SHOW: Final = FieldTable(
    "POST /api/show",
    (
        *honoured("model", "name", note="One of them: the name of a model."),
        *ignored("verbose", note="The bridge knows no more than it tells in any case."),
        *refused("system", "template", note="nothing is rendered", neutral=("",)),
        *refused("options", note="nothing is run", neutral=({},)),
    ),
)
_STORED: Final = honoured(
    "model", "name", note="One of them. A tag `latest` counts as none."
)
PULL: Final = FieldTable(
    "POST /api/pull",
    (
        *_STORED,
        *honoured(
            "stream",
            note="Lines of JSON; on unless it is `false`. Only `hf.co/OWNER/REPO:QUANT`, "
            "`hf:…` and `embedded:…` are pulled, from the sources that the operator allows.",
        ),
        *refused("insecure", note="nothing is fetched without TLS", neutral=(False,)),
        *refused("username", "password", note="public models alone are pulled"),
    ),
)
DELETE: Final = FieldTable("DELETE /api/delete", _STORED)
OPTIONS: Final = FieldTable(
    "`options`",
    (
        *honoured("temperature", "top_k", "top_p", "min_p"),
        *honoured("seed", note="-1 for a random one."),
        *honoured("stop", note="A text or texts."),
        *honoured(
            "num_predict",
            note="Tokens of the answer; 0, -1 and -2: as many as the context has room for. "
            "Without it, as many as `bridge.default_max_tokens`.",
        ),
        *honoured("repeat_penalty", "presence_penalty", "frequency_penalty"),
        *honoured(
            "num_ctx",
            note="Refused where the model's context has fewer tokens than that; a larger "
            "one stays as it is. In both cases the daemon's configuration decides.",
        ),
        *ignored("num_keep", note="Nothing is cut from a conversation."),
        *refused(
            "repeat_last_n",
            note="the daemon decides how many tokens are recent",
            neutral=(64,),
        ),
        *refused("typical_p", note="not sampled so", neutral=(1, 1.0)),
        *refused("tfs_z", note="not sampled so", neutral=(1, 1.0)),
        *refused("mirostat", note="not sampled so", neutral=(0,)),
        *refused("mirostat_tau", note="there is no mirostat", neutral=(5, 5.0)),
        *refused("mirostat_eta", note="there is no mirostat", neutral=(0.1,)),
        *refused(
            "penalize_newline", note="newlines are tokens as others", neutral=(True,)
        ),
        *refused("num_gpu", note="the operator decides", neutral=(-1,)),
        *refused("num_thread", note="the operator decides", neutral=(0,)),
        *refused("num_batch", note="the operator decides", neutral=(512,)),
        *refused("main_gpu", note="the operator decides", neutral=(0,)),
        *refused("use_mmap", note="the operator decides", neutral=(True,)),
        *refused("f16_kv", note="the operator decides", neutral=(True,)),
        *refused(
            *("use_mlock", "low_vram", "numa"),
            note="the operator decides",
            neutral=(False,),
        ),
        *refused(
            *("logits_all", "vocab_only", "embedding_only"),
            note="the operator decides",
            neutral=(False,),
        ),
    ),
)
