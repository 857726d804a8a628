"""The start of a backend's worker, by the record of its kind; and what a worker is sent."""

import msgspec

from inferd.config.kinds.kind import InWorker
from inferd.config.kinds.registry import KINDS
from inferd.config.settings import BackendSettings, LimitSettings
from inferd.engine.supervisor.spawn import WorkerStart, first_start
from inferd.ipc.encoding import decode_settings, decode_to_worker
from inferd.ipc.worker import Load, ReceivedByWorker, ReceivedLoad, ToWorker

MOCK_PROGRAM = "inferd.worker.mock"


def program_of(settings: BackendSettings) -> str:
    """Look up the program of a backend's worker."""
    served_by = KINDS.of(settings).served_by
    assert isinstance(served_by, InWorker)
    return served_by.program


def start_of(
    settings: BackendSettings,
    *,
    n_slots: int = 1,
    limits: LimitSettings = LimitSettings(),  # noqa: B008  # frozen
) -> WorkerStart:
    """Make the first start of a backend's worker."""
    program = program_of(settings)
    return first_start(program, settings, n_slots=n_slots, limits=limits)


def decode_load_too(payload: bytes | bytearray) -> ToWorker:
    """Decode a message to a worker, the settings of a ``Load`` as well."""
    return whole(decode_to_worker(payload))


def whole(message: ReceivedByWorker) -> ToWorker:
    """Decode the settings of a ``Load`` by the type of their kind."""
    if not isinstance(message, ReceivedLoad):
        return message
    named = msgspec.msgpack.decode(message.settings)["kind"]
    [kind] = [each for each in KINDS.kinds if each.name == named]
    options = msgspec.structs.asdict(message)
    return Load(**{**options, "settings": decode_settings(message, kind.settings)})
