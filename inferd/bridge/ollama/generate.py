"""A request for a text that follows a prompt, and the daemon's request that it becomes."""

from msgspec import field

from inferd.bridge.ollama.chat import to_question
from inferd.bridge.ollama.messages import image_blocks
from inferd.bridge.ollama.sampling import GenerationFields
from inferd.bridge.ollama.tables import GENERATE
from inferd.bridge.translation.body import read_body
from inferd.bridge.translation.media import MediaOfRequest
from inferd.bridge.translation.question import Asked, Question
from inferd.wire.blocks import BlocksRequest, Message, TextBlock


class OllamaPrompt(GenerationFields, frozen=True, kw_only=True):
    """The honoured fields of a prompt."""

    prompt: str = ""
    system: str = ""
    images: list[str] = field(default_factory=list)


def ask_generate(body: bytes, asked: Asked) -> Question:
    """Translate a request for a text: a chat of one message; without a prompt, a load.

    Raises:
        BridgeError: it has something that is not served, or that contradicts itself.
    """
    wanted = read_body(body, GENERATE, OllamaPrompt)
    media = MediaOfRequest()
    blocks = image_blocks(wanted.images, "images", media)
    messages: list[Message] = []
    if wanted.prompt:
        if wanted.system:
            messages.append(Message("system", [TextBlock(wanted.system)]))
        messages.append(Message("user", [*blocks, TextBlock(wanted.prompt)]))
    request = BlocksRequest(id=asked.request_id, messages=messages)
    return to_question(request, wanted, asked, media, is_chat=False)
