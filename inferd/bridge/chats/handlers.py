"""What the bridge does for each route of chats, given who asks and what."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import msgspec
from msgspec.structs import replace

from inferd.bridge.chats import documents as told, requests as asked
from inferd.bridge.chats.attachments import AttachedFiles
from inferd.bridge.chats.hosted import HostedRequest
from inferd.bridge.chats.imported import imported_messages, new_id
from inferd.bridge.translation.body import read_part
from inferd.bridge.translation.failures import BridgeError, Reason, invalid
from inferd.chats.branches import branch_to
from inferd.chats.documents import (
    ChatDocument,
    MessageDocument,
    WholeChatDocument,
    chat_document,
    markdown,
    message_document,
    whole_chat,
)
from inferd.chats.records import (
    ChatSampling,
    KeptAttachment,
    KeptChat,
    KeptMessage,
    MessageDetails,
    OwnSettings,
    WorkParameters,
)
from inferd.chats.storage import chats, messages
from inferd.chats.storage.attachments import read_attachment, read_files
from inferd.chats.storage.decisions import decide
from inferd.chats.storage.imports import add_imported
from inferd.chats.storage.messages import MessageLimits
from inferd.chats.storage.search import search, words_of
from inferd.chats.store import ChatConnection, ChatStore, now_us
from inferd.config.chats import ChatsSettings
from inferd.limits.bridge import MAX_EXPORT_FILE_BYTES

ID_BYTES: Final = 16


@dataclass(frozen=True)
class NewAnswer:
    """An answer that is stored, and to be generated."""

    message: KeptMessage
    cancelled: Sequence[str]
    """Ids of the answers that are not waited for any more."""
    is_new: bool
    """Whether it was not there already."""
    prompt: KeptMessage | None = None
    """Where it was sent with it."""


class ChatHandlers:
    """Reads and changes chats for their owners.

    Each method raises ``BridgeError`` for a request that is refused, and ``ChatError`` for what
    cannot be found or stored.

    Args:
        store: of chats.
        settings: the bounds.
    """

    def __init__(self, store: ChatStore, settings: ChatsSettings) -> None:
        self._store = store
        self._settings = settings
        self._limits = MessageLimits(
            n_messages=settings.max_messages,
            n_chars=settings.max_user_chars,
            n_pending=settings.max_pending,
            n_attached_bytes=settings.max_user_attachment_bytes,
        )

    async def list_chats(self, request: HostedRequest) -> told.ChatListDocument:
        """List a page of chats."""
        query = request.parameters(asked.ListQuery)
        after = told.place_of_cursor(query.after, "after")
        before = told.place_of_cursor(query.before, "before")
        if after and before:
            raise invalid("before", "after and before exclude each other")
        found = await self._store.run(
            lambda connection: chats.list_chats(
                connection,
                request.owner,
                query.limit + 1,
                includes_hidden=query.include_hidden,
                after=after,
                before=before,
            )
        )
        return told.chat_page(
            found, query.limit, is_after=after is not None, is_before=before is not None
        )

    async def create_chat(self, request: HostedRequest) -> ChatDocument:
        """Begin a chat."""
        fields = request.fields(asked.CreateChat)
        chat = self._new_chat(request.owner, fields.title, fields.settings)
        n_most = self._settings.max_chats
        await self._store.run(
            lambda connection: chats.create_chat(connection, chat, n_most)
        )
        return chat_document(chat)

    def _new_chat(
        self, owner: str, title: str | None, settings: OwnSettings | None
    ) -> KeptChat:
        moment = now_us()
        return KeptChat(
            id=new_id(),
            owner=owner,
            created_us=moment,
            modified_us=moment,
            title=title,
            settings=settings or OwnSettings(),
        )

    async def read_chat(self, request: HostedRequest) -> WholeChatDocument:
        """Return a chat with its messages."""
        chat, found = await self._whole(request)
        return whole_chat(chat, found)

    async def _whole(
        self, request: HostedRequest
    ) -> tuple[KeptChat, Sequence[KeptMessage]]:
        owner, chat_id = request.owner, request.chat_id
        return await self._store.run(
            lambda connection: (
                chats.read_chat(connection, owner, chat_id),
                messages.read_messages(connection, owner, chat_id),
            )
        )

    async def change_chat(self, request: HostedRequest) -> ChatDocument:
        """Change a chat."""
        fields = request.fields(asked.ChangeChat)
        changes: dict[str, str | bool | None] = {}
        if fields.title is not None:
            changes["title"] = fields.title
        if fields.hidden is not None:
            changes["is_hidden"] = fields.hidden
        if fields.active_thread_tail_message_id is not None:
            changes["tail_id"] = fields.active_thread_tail_message_id
        if fields.settings is not None:
            changes["settings"] = msgspec.json.encode(fields.settings).decode()
        moment = now_us()
        chat = await self._store.run(
            lambda connection: chats.change_chat(
                connection, request.owner, request.chat_id, changes, moment
            )
        )
        return chat_document(chat)

    async def delete_chat(self, request: HostedRequest) -> None:
        """Delete a chat; the words of its index leave the disk after that."""
        await self._store.run(
            lambda connection: chats.delete_chat(
                connection, request.owner, request.chat_id
            )
        )
        await self._store.settle()

    async def search(self, request: HostedRequest) -> told.HitsDocument:
        """Find messages."""
        query = request.parameters(asked.SearchQuery)
        hits = await self._store.run(
            lambda connection: search(connection, request.owner, query.q, query.limit)
        )
        words = words_of(query.q)
        return told.HitsDocument(hits=[told.hit_document(hit, words) for hit in hits])

    async def export_json(self, request: HostedRequest) -> WholeChatDocument:
        """Return a chat with its messages and, where that is wanted, their files."""
        chat, found = await self._whole(request)
        files: Mapping[str, bytes] = {}
        if request.parameters(asked.ExportQuery).attachments:
            attached = [each for message in found for each in message.attachments]
            if sum(each.n_bytes for each in attached) > MAX_EXPORT_FILE_BYTES:
                raise invalid(
                    "attachments",
                    f"the files of the chat have over {MAX_EXPORT_FILE_BYTES} bytes; export it "
                    "with attachments=false, and each file from its own route",
                )
            files = await self._files(request, [each.id for each in attached])
        return whole_chat(chat, found, files)

    async def _files(
        self, request: HostedRequest, ids: Sequence[str]
    ) -> Mapping[str, bytes]:
        return await self._store.run(
            lambda connection: read_files(
                connection, request.owner, request.chat_id, ids
            )
        )

    async def read_attachment(
        self, request: HostedRequest
    ) -> tuple[KeptAttachment, bytes]:
        """Return a picture or a recording."""
        attachment_id = request.named["attachment_id"]
        return await self._store.run(
            lambda connection: read_attachment(
                connection, request.owner, request.chat_id, attachment_id
            )
        )

    async def export_markdown(self, request: HostedRequest) -> str:
        """Return the branch that the owner looks at, as Markdown."""
        chat, found = await self._whole(request)
        return markdown(chat, branch_to(found, chat.tail_id))

    async def import_chat(self, request: HostedRequest) -> ChatDocument:
        """Store a chat that was exported."""
        fields = request.fields(asked.ImportChat)
        messages.check_n_messages(len(fields.messages), self._limits)
        chat = self._new_chat(request.owner, fields.title, fields.settings)
        files = AttachedFiles(self._settings)
        new = imported_messages(chat, fields.messages, files)
        for message in new:
            self._check_length(message.text)
            self._check_length(message.thinking)
        n_most, limits = self._settings.max_chats, self._limits
        stored = await self._store.run(
            lambda connection: add_imported(
                connection, chat, new, n_most, limits, files=files.found
            )
        )
        return chat_document(stored)

    async def create_prompt(self, request: HostedRequest) -> MessageDocument:
        """Add a message of the person."""
        fields = request.fields(asked.CreatePrompt)
        files = AttachedFiles(self._settings)
        message = self._prompt(request, fields, files, fields.id)
        stored = await self._store.run(
            lambda connection: messages.add_message(
                connection, request.owner, message, self._limits, files=files.found
            )
        )
        return message_document(stored)

    def _prompt(
        self,
        request: HostedRequest,
        fields: asked.CreatePrompt | asked.CreateBoth,
        files: AttachedFiles,
        own: str | None = None,
    ) -> KeptMessage:
        self._check_length(fields.content)
        attached = files.take(fields.attachments, "attachments")
        if not (fields.content or attached):
            raise invalid("content", "has no character, and there are no attachments")
        return KeptMessage(
            id=own or new_id(),
            chat_id=request.chat_id,
            parent_id=fields.parent_id,
            role="prompter",
            state="manual",
            created_us=now_us(),
            text=fields.content,
            attachments=attached,
        )

    def _check_length(self, content: str) -> None:
        n_most = self._settings.max_message_chars
        if len(content) > n_most:
            raise BridgeError(
                Reason.CHAT_LIMIT,
                f"content: has over {n_most} characters",
                param="content",
            )
        if "\0" in content:
            raise invalid("content", "has a character with code 0")

    async def create_answer(self, request: HostedRequest) -> NewAnswer:
        """Store an answer that is to be generated."""
        fields = request.fields(asked.CreateAnswer)
        work = WorkParameters(
            model=fields.model_config_name,
            sampling=_sampling(fields.sampling_parameters),
            system_prompt=fields.system_prompt,
            thinking=fields.thinking,
        )
        message = _pending(request.chat_id, fields.parent_id, work, fields.id)
        return await self._store.run(
            lambda connection: self._add_answer(connection, request.owner, message)
        )

    def _add_answer(
        self,
        connection: ChatConnection,
        owner: str,
        answer: KeptMessage,
        prompt: KeptMessage | None = None,
        files: AttachedFiles | None = None,
    ) -> NewAnswer:
        """Store an answer, after its prompt, and cancel those that still wait."""
        answer = _instructed(answer, chats.read_chat(connection, owner, answer.chat_id))
        if prompt is not None and files is not None:
            messages.add_message(
                connection, owner, prompt, self._limits, files=files.found
            )
        stored = messages.add_message(
            connection, owner, answer, self._limits, self._store.runner
        )
        is_new = stored is answer
        cancelled: Sequence[str] = ()
        if is_new:
            cancelled = messages.cancel_others(connection, answer.chat_id, answer.id)
        return NewAnswer(stored, cancelled, is_new=is_new, prompt=prompt)

    async def create_both(self, request: HostedRequest) -> NewAnswer:
        """Store a message of the person, and its answer that is to be generated."""
        fields = request.fields(asked.CreateBoth)
        files = AttachedFiles(self._settings)
        prompt = self._prompt(request, fields, files)
        work = WorkParameters(
            model=fields.model_config_name,
            sampling=_sampling(fields.sampling_parameters),
        )
        answer = _pending(request.chat_id, prompt.id, work, None)
        return await self._store.run(
            lambda connection: self._add_answer(
                connection, request.owner, answer, prompt, files
            )
        )

    async def read_message(self, request: HostedRequest) -> KeptMessage:
        """Return a message as it is stored."""
        return await self._store.run(
            lambda connection: messages.read_message(
                connection, request.owner, request.chat_id, request.message_id
            )
        )

    async def decide_call(self, request: HostedRequest) -> KeptMessage:
        """Store whether a call is made; return the message."""
        fields = request.fields(asked.DecideCall)
        return await self._store.run(
            lambda connection: decide(
                connection,
                request.owner,
                request.chat_id,
                request.message_id,
                call_id=request.named["call_id"],
                is_allowed=fields.allow,
            )
        )

    async def stop(self, request: HostedRequest) -> KeptMessage:
        """Mark an answer as cancelled, if it has not ended."""
        request.fields(asked.Nothing)
        return await self._store.run(
            lambda connection: messages.stop_message(
                connection, request.owner, request.chat_id, request.message_id
            )
        )


def _sampling(sent: dict[str, object] | None) -> ChatSampling:
    return read_part(sent or {}, asked.SAMPLING, ChatSampling, "sampling_parameters")


def _instructed(answer: KeptMessage, chat: KeptChat) -> KeptMessage:
    """Return an answer with the instructions of its chat, where it has none of its own."""
    work = answer.details.work
    if work is None or work.system_prompt is not None:
        return answer
    work = replace(work, system_prompt=chat.settings.system_prompt)
    return replace(answer, details=replace(answer.details, work=work))


def _pending(
    chat_id: str, parent_id: str, work: WorkParameters, own: str | None
) -> KeptMessage:
    return KeptMessage(
        id=own or new_id(),
        chat_id=chat_id,
        parent_id=parent_id,
        role="assistant",
        state="pending",
        created_us=now_us(),
        details=MessageDetails(work=work),
    )
