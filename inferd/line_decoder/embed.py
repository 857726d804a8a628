"""Large lines with embed requests."""

from typing import Final

from msgspec.structs import replace

from inferd.backend.job import EmbedJob
from inferd.ipc.encoding import encode_content
from inferd.line_decoder.kind import LineKind, shortened
from inferd.resolve.embed import resolve_embed
from inferd.wire.codec import decode_embed
from inferd.wire.requests import EmbedRequest


def _job_head(job: EmbedJob) -> EmbedJob:
    return replace(job, texts=[""] * len(job.texts), tokens=[[]] * len(job.tokens))


EMBED: Final = LineKind(
    name="embed",
    request=EmbedRequest,
    job=EmbedJob,
    decode=decode_embed,
    resolve=lambda request, _: resolve_embed(request),
    without_content=lambda request: EmbedRequest(
        id=request.id, principal=shortened(request.principal), input=[]
    ),
    job_head=_job_head,
    content=encode_content,
)
