"""Listing of a repository, by the hub's own library."""

import socket
from typing import Final

import httpx2
from huggingface_hub import HfApi, constants, hf_hub_url, set_client_factory
from huggingface_hub.errors import HfHubHTTPError, HFValidationError
from huggingface_hub.hf_api import ModelInfo, RepoSibling

from inferd import __version__
from inferd.downloader.session import TaskError, Web, check_status
from inferd.limits.models import PULL_ANSWER_S, PULL_MAX_LISTED
from inferd.models.pull.messages import DETAIL_MAX_CHARS, HubFile, ListHub, Listing

MODEL_SUFFIXES: Final = (".gguf", ".bin")


def prepare(web: Web) -> None:
    """Have the hub's library use a client.

    What it imports at first use is imported here: another user may not read it.
    """
    set_client_factory(lambda: web.client)
    "localhost".encode("idna")
    socket.getaddrinfo("localhost", 443)
    HfApi(token=False).model_info  # noqa: B018  # its module is imported


def list_hub(web: Web, task: ListHub) -> Listing:
    """List the model files of a repository.

    Raises:
        TaskError: the hub cannot be asked, or has no such repository or revision.
    """
    with web.bound_to(constants.ENDPOINT, is_pinned=False):
        try:
            info = HfApi(
                token=task.token or False,
                library_name="inferd",
                library_version=__version__,
            ).model_info(
                task.repository,
                revision=task.revision or None,
                files_metadata=True,
                timeout=PULL_ANSWER_S,
            )
        except HfHubHTTPError as error:
            check_status(error.response)
            raise TaskError("status", str(error)) from error
        except HFValidationError as error:
            raise TaskError("not_found", str(error)) from error
        except (httpx2.HTTPError, TaskError):
            raise
        except (TypeError, KeyError, AttributeError) as error:
            raise TaskError("invalid", f"no description of a model: {error}") from error
        return _listing(info, task.repository)


def _listing(info: ModelInfo, repository: str) -> Listing:
    files = [
        file
        for file in info.siblings or ()
        if file.rfilename.lower().endswith(MODEL_SUFFIXES)
    ]
    if len(files) > PULL_MAX_LISTED:
        raise TaskError("invalid", f"the repository has {len(files)} model files")
    commit = info.sha or ""
    return Listing(
        commit=commit,
        license=_license(info),
        files=tuple(_file(file, repository, commit) for file in files),
    )


def _file(file: RepoSibling, repository: str, commit: str) -> HubFile:
    return HubFile(
        path=file.rfilename,
        url=hf_hub_url(repository, file.rfilename, revision=commit),
        n_bytes=file.lfs.size if file.lfs else file.size or 0,
        sha256=file.lfs.sha256 if file.lfs else "",
    )


def _license(info: ModelInfo) -> str:
    stated = info.card_data.get("license") if info.card_data else None
    return stated[:DETAIL_MAX_CHARS] if isinstance(stated, str) else ""
