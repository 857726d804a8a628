"""The service of ``describe`` lines: the models that requests on a socket may ask for."""

from collections.abc import Callable
from dataclasses import dataclass

from msgspec import UNSET

from inferd.admission.control import RequestTraits
from inferd.backend.capabilities import BackendCapabilities
from inferd.errors import BackendUnavailableError, CancelledError, ModelNotFoundError
from inferd.limits.protocol import MAX_DESCRIBED_MODELS
from inferd.resolve.options import context_of, model_of
from inferd.routing import Requirement, named_backend
from inferd.server.connection.response_writer import ResponseWriter
from inferd.server.loading.store_models import UNREAD
from inferd.server.request_context import RequestContext
from inferd.server.services.described import (
    described_models,
    facts_of,
    listed_models,
)
from inferd.server.services.pipeline import Pipeline
from inferd.wire.requests import DescribeRequest
from inferd.wire.responses import ModelsFrame


@dataclass(frozen=True)
class DescribeService:
    """Answers ``describe`` lines, without the queue."""

    pipeline: Pipeline
    is_served_by: Callable[[BackendCapabilities], bool]
    """Tells whether a backend can serve the socket: no others are described."""

    async def answer(
        self, request: DescribeRequest, reply: ResponseWriter, context: RequestContext
    ) -> None:
        """Describe the model that a line names, or all; raises and is cancelled as others.

        The header of a named model of the store is read first.

        Raises:
            InferdError: it names a model that is not served here, or that cannot be read.
            PeerGoneError: the client has disconnected.

        Bounds: ``MAX_DESCRIBED_MODELS``.
        """
        model = model_of(request)
        with context.scope:
            if model is not None:
                await self.pipeline.open_stored(
                    model, context, lambda: _traits(context)
                )
            reply.put([self._describe(request, model)])
        if not reply.is_over:
            raise CancelledError
        await reply.finish()
        context.listed()

    def _describe(self, request: DescribeRequest, model: str | None) -> ModelsFrame:
        backends, names = self.pipeline.backends, self.pipeline.names
        needs = (
            Requirement(
                "requests on this socket",
                self.is_served_by,
                lambda *_: BackendUnavailableError("no backend available"),
            ),
            *context_of(request),
        )
        if model is None:
            most = MAX_DESCRIBED_MODELS
            models, n_models = listed_models(backends, needs, names, most=most)
            omitted = n_models - len(models) or UNSET
            return ModelsFrame(id=request.id, models=models, omitted=omitted)
        try:
            found = named_backend(backends, needs, model, names)
        except ModelNotFoundError as error:
            if request.describe:
                error.described = described_models(backends, needs, names)
            raise
        aliases = names.aliases_of(found.name)
        return ModelsFrame(id=request.id, models=[facts_of(found, aliases)])


def _traits(context: RequestContext) -> RequestTraits:
    """Return what decides about the place of a line that waits for a header."""
    return RequestTraits(backend=UNREAD, caller=context.caller, n_bytes=context.n_bytes)
