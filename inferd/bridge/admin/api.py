"""The record of the routes with which models are managed."""

from typing import Final

from inferd.bridge.admin.answers import (
    LINES,
    BackendListAnswer,
    BackendListing,
    ManagedAnswer,
    ModelAnswer,
    ModelListAnswer,
    ModelListing,
    ToldAnswer,
)
from inferd.bridge.admin.requests import (
    BackendRequest,
    PullRequest,
    ask_order,
    ask_pull,
    asking,
)
from inferd.bridge.admin.tables import LOAD, PULL, UNLOAD
from inferd.bridge.openai.failures import OpenAiFailure, failure_body
from inferd.bridge.translation.api import Api
from inferd.bridge.translation.managed import ManagedOperation
from inferd.bridge.translation.query import NO_QUERY
from inferd.wire.management import HelperDone, ManagedLog, ManagedMachine, ManagedModel

_MODELS: Final = "/admin/models"
_MODEL: Final = "/admin/models/{model:path}"

ADMIN_API: Final = Api(
    name="admin",
    prefixes=("/admin/",),
    managed=(
        ManagedOperation(
            path=_MODELS,
            method="GET",
            scope="models",
            summary="List the models of the store",
            ask=asking("list", ModelListAnswer),
            answer=ModelListing,
        ),
        ManagedOperation(
            path=_MODEL,
            method="GET",
            scope="models",
            summary="Describe a model of the store",
            ask=asking("show", ModelAnswer),
            answer=ManagedModel,
        ),
        ManagedOperation(
            path=_MODEL,
            method="DELETE",
            scope="models",
            summary="Remove a model from the store",
            ask=asking("remove", ManagedAnswer),
            answer=HelperDone,
        ),
        ManagedOperation(
            path="/admin/pull",
            method="POST",
            scope="models",
            summary="Pull a model into the store",
            ask=ask_pull,
            table=PULL,
            stream=LINES,
            body=PullRequest,
            answer=HelperDone,
        ),
        ManagedOperation(
            path="/admin/backends",
            method="GET",
            scope="admin",
            summary="List the backends of the daemon, and whether each is loaded",
            ask=asking("status", BackendListAnswer),
            answer=BackendListing,
        ),
        ManagedOperation(
            path="/admin/machine",
            method="GET",
            scope="admin",
            summary="Tell the daemon's requests, the numbers of inferd top, and metrics",
            ask=asking("machine", ToldAnswer),
            answer=ManagedMachine,
        ),
        ManagedOperation(
            path="/admin/log",
            method="GET",
            scope="admin",
            summary="Tell the newest lines of the daemon's log",
            ask=asking("log", ToldAnswer),
            answer=ManagedLog,
        ),
        ManagedOperation(
            path="/admin/load",
            method="POST",
            scope="admin",
            summary="Load a backend's model before a request needs it",
            ask=ask_order("load", LOAD),
            table=LOAD,
            body=BackendRequest,
            answer=HelperDone,
        ),
        ManagedOperation(
            path="/admin/unload",
            method="POST",
            scope="admin",
            summary="Unload a backend's model to free its memory",
            ask=ask_order("unload", UNLOAD),
            table=UNLOAD,
            body=BackendRequest,
            answer=HelperDone,
        ),
        ManagedOperation(
            path="/admin/reload",
            method="POST",
            scope="admin",
            summary="Make the daemon read its configuration again",
            ask=asking("reload", ManagedAnswer),
            answer=HelperDone,
        ),
    ),
    query=NO_QUERY,
    error_body=failure_body,
    failure=OpenAiFailure,
)
