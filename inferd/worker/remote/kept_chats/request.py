"""A conversation as requests to a bridge's chats; what chats do not take is refused.

Source: ``docs/bridge-chats.md``.
"""

import secrets
from collections.abc import Mapping, Sequence
from typing import Annotated, Final

import msgspec
from msgspec import Meta, Struct

from inferd.backend.job import GenerateJob
from inferd.config.kinds.inferd import InferdSettings
from inferd.worker.backend import RefusedError
from inferd.worker.remote.api import AnswerForm, RemoteRequest
from inferd.worker.remote.conversation.reader import decode_part
from inferd.worker.remote.conversation.refusals import refuse, refuse_local
from inferd.worker.remote.conversation.turns import SplitTurns
from inferd.worker.remote.kept_chats.places import ChatPlace, ChatPlaces

_ID_BYTES: Final = 16
_UNKNOWN: Final = (
    "messages: this conversation is not kept at the remote, or was forgotten here: "
    "a conversation begins with one message of the user"
)


class _Created(Struct):
    id: Annotated[str, Meta(pattern=r"^[0-9a-f]{32}\Z")]


_CREATED: Final = msgspec.json.Decoder(_Created)


class ChatRequests:
    """Writes the requests of conversations.

    Args:
        places: where conversations go on.
    """

    def __init__(self, places: ChatPlaces) -> None:
        self._places = places

    def write(
        self, settings: InferdSettings, job: GenerateJob, media: Sequence[bytes] = ()
    ) -> RemoteRequest:
        """Write the first request, which the others follow.

        Args:
            settings: of the backend.
            job: to translate.
            media: of the job; there are none.

        Raises:
            RefusedError: chats do not take what the job has, or its conversation is not one
                that was begun here.
        """
        _check(settings, job, media)
        split = SplitTurns(job)
        before = split.turns[:-1]
        question = split.turns[-1].text
        if not before:
            return self._begin(settings, job, question, split.system)
        place = self._places.find(job.owner, job.turns[:-1])
        if place is None:
            raise RefusedError(_UNKNOWN)
        return _ask(settings, job, question, place)

    def _begin(
        self,
        settings: InferdSettings,
        job: GenerateJob,
        question: str,
        system: Sequence[str],
    ) -> RemoteRequest:
        own = {"system_prompt": "\n\n".join(system)} if system else {}

        def then(body: bytes) -> RemoteRequest:
            chat = decode_part(_CREATED, body).id
            return _ask(settings, job, question, ChatPlace(chat, ""))

        request = _post("/chats", {"settings": own})
        return request._replace(then=then)


def _check(settings: InferdSettings, job: GenerateJob, media: Sequence[bytes]) -> None:
    refuse_local(settings, job)
    sampling = job.sampling
    refuse(
        settings,
        {
            "input_tokens": bool(job.input_tokens),
            "attachments": bool(media or job.media),
            "tools": bool(job.tools),
            "response_format": job.structure is not None,
            "logprobs": job.n_alternatives > 0,
            "logit_bias": bool(sampling.logit_bias),
            "seed": sampling.seed_given,
            "min_p": bool(sampling.min_p),
            "presence_penalty": sampling.presence_penalty != 0,
            "frequency_penalty": sampling.frequency_penalty != 0,
            "token_ids": job.wants_token_ids,
        },
    )
    if not job.turns or job.turns[-1].role != "user":
        raise RefusedError("messages: the last one has to be the user's")


def _ask(
    settings: InferdSettings, job: GenerateJob, question: str, place: ChatPlace
) -> RemoteRequest:
    """Write the message of the user, behind which the answer is asked for and followed."""
    chat = f"/chats/{place.chat_id}"
    prompt_id, answer_id = _new_id(), _new_id()
    events = RemoteRequest(
        f"{chat}/messages/{answer_id}/events",
        b"",
        AnswerForm.EVENTS,
        when_dropped=_post(f"{chat}/messages/{answer_id}/stop", {}),
    )
    asked = {
        "id": answer_id,
        "parent_id": prompt_id,
        "model_config_name": settings.model,
        "thinking": job.thinks or None,
        "sampling_parameters": _sampling(job),
    }
    answer = _post(f"{chat}/assistant_message", asked)._replace(then=lambda _: events)
    said = {"id": prompt_id, "content": question}
    if place.message_id:
        said["parent_id"] = place.message_id
    prompt = _post(f"{chat}/prompter_message", said)
    return prompt._replace(then=lambda _: answer)


def _sampling(job: GenerateJob) -> dict[str, object]:
    sampling = job.sampling
    given = {
        "temperature": sampling.temperature,
        "top_p": sampling.top_p,
        "top_k": sampling.top_k,
        "repetition_penalty": sampling.repeat_penalty,
        "max_new_tokens": job.max_tokens,
    }
    return {name: value for name, value in given.items() if value is not None}


def _post(path: str, fields: Mapping[str, object]) -> RemoteRequest:
    return RemoteRequest(path, msgspec.json.encode(fields), AnswerForm.DOCUMENT)


def _new_id() -> str:
    return secrets.token_hex(_ID_BYTES)
