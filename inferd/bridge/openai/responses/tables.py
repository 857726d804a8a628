"""The fields of a request for a response, and what becomes of each."""

from typing import Final

from inferd.bridge.translation.fields import FieldTable, honoured, ignored, refused

RESPONSES: Final = FieldTable(
    "POST /v1/responses",
    (
        *honoured(
            "model",
            note="A name or an alias that `/v1/models` lists; without it, the first that "
            "can.",
        ),
        *honoured(
            "input",
            note="A text, or items: messages of text, pictures and recordings, "
            "`function_call`, `function_call_output`, and `reasoning`, which is not "
            "repeated to the model. An `input_image` has the picture in its `image_url` "
            "(`data:…;base64,…`), since the bridge fetches and stores nothing; its "
            "`detail` is ignored, and pictures are not scaled for it. `input_audio` is a "
            "wav or mp3 file. A model that takes none refuses them with 400, and parts of "
            "type `input_file` are refused.",
        ),
        *honoured("instructions", note="A system message before the input."),
        *honoured("max_output_tokens", note="At least 1."),
        *honoured("temperature", "top_p"),
        *honoured("stream"),
        *honoured("stream_options", note="Needs `stream`; there is no obfuscation."),
        *honoured(
            "tools",
            note="Functions. Tools of other types are skipped, and `inferd_skipped_tools` "
            "in the `metadata` of the response names them. Calls are held to their schemas "
            "where `tool_choice` forces a call or `text.format` is JSON, `strict` or not; "
            "else one is as the model writes it, the response repeats its tools with "
            "`strict` false, and the header `x-inferd-unenforced` lists them.",
        ),
        *honoured(
            "tool_choice",
            note="Enforced while the answer is generated; one that names a skipped tool is "
            "refused. Of `allowed_tools`, the others are left out of the prompt.",
        ),
        *honoured(
            "parallel_tool_calls", note="`false`: the answer ends with the first call."
        ),
        *honoured(
            "text",
            note="`format` is enforced while the answer is generated; of `verbosity` only "
            "medium, which is the default.",
        ),
        *honoured(
            "reasoning",
            note="`effort`: `none` and `minimal` switch reasoning off, all others on alike; "
            "refused with 400 where the model does not reason. Reasoning is sent as it is, without "
            "a `summary`.",
        ),
        *honoured(
            "include",
            note="`message.output_text.logprobs`; the others name what no response has.",
        ),
        *honoured("top_logprobs", note="0 to 20."),
        *honoured("metadata", note="Comes back in the response."),
        *honoured(
            "keep_alive", note="An addition: seconds, as `keep_alive_s` of the daemon."
        ),
        *ignored("store", note="Nothing is stored: send the whole conversation."),
        *ignored("max_tool_calls", note="The bridge calls no tools itself."),
        *ignored(
            *("user", "safety_identifier", "client_metadata"),
            note="Whose request it is follows from the token.",
        ),
        *ignored("prompt_cache_key", note="Prompts are cached in any case."),
        *refused(
            *("previous_response_id", "conversation"),
            note="nothing is stored; send the whole conversation as input",
        ),
        *refused("prompt", note="no prompts are stored"),
        *refused("background", note="nothing is stored", neutral=(False,)),
        *refused("background_options", note="nothing is stored"),
        *refused(
            "truncation",
            note="a conversation that does not fit is refused",
            neutral=("disabled",),
        ),
        *refused("context_management", note="nothing is compacted", neutral=([],)),
        *refused(
            "service_tier",
            note="there is one tier, default",
            neutral=("auto", "default"),
        ),
        *refused(
            *("prompt_cache_retention", "prompt_cache_options"),
            note="caches are the daemon's own affair",
        ),
        *refused("moderation", note="nothing is moderated"),
        *refused("image", note="no pictures are made"),
        *refused("access_programs", note="there are none"),
    ),
)
