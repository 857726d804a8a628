import importlib
import pkgutil

import inferd.limits
from inferd.limits import (
    connections,
    engine,
    line_decoder,
    protocol,
    server,
    worker,
)
from tests.cases import each_case
from tests.unit.bounds import unexplained

MODULES = sorted(module.name for module in pkgutil.iter_modules(inferd.limits.__path__))


@each_case("name", MODULES)
def test_every_bound_has_a_docstring_with_its_reason(name):
    assert unexplained(importlib.import_module(f"inferd.limits.{name}")) == []


# --- protocol ---------------------------------------------------------------------


def test_a_default_answer_fits_into_a_default_context():
    assert protocol.DEFAULT_MAX_TOKENS < engine.DEFAULT_CONTEXT_TOKENS


def test_an_answer_of_the_embedded_width_fits_a_frame_however_many_texts_it_has():
    vector = 384 * protocol.EMBED_NUMBER_BYTES
    assert protocol.MAX_EMBED_INPUTS * vector < protocol.MAX_FRAME_BYTES / 2


def test_no_number_of_a_vector_is_longer_than_it_is_counted():
    assert len("-1.2345678901234567e-38,") == protocol.EMBED_NUMBER_BYTES


def test_all_documents_fit_a_frame():
    assert protocol.MAX_RERANK_BYTES < protocol.MAX_FRAME_BYTES / 2


# --- connections ------------------------------------------------------------------


def test_requests_read_ahead_are_small_beside_a_frame():
    assert connections.READ_AHEAD_BYTES < protocol.MAX_FRAME_BYTES / 10
    assert protocol.MAX_COMMAND_BYTES < connections.READ_AHEAD_BYTES


def test_unfinished_lines_of_all_clients_are_bounded():
    small = connections.MAX_CONNECTIONS * connections.LIMITED_LINE_BYTES
    large = connections.MAX_LARGE_LINES * protocol.MAX_FRAME_BYTES
    assert small + large < 400 * 1024 * 1024
    assert connections.LIMITED_LINE_BYTES < connections.READ_AHEAD_BYTES


def test_a_list_of_requests_is_small_beside_a_frame():
    n_bytes = server.MAX_LISTED_REQUESTS * server.MAX_LISTED_ID_CHARS
    assert n_bytes < protocol.MAX_FRAME_BYTES / 10
    assert server.MAX_LISTED_ID_CHARS < protocol.MAX_ID_CHARS


# --- workers ----------------------------------------------------------------------


def test_a_request_as_long_as_a_frame_fits_into_a_message_to_a_worker():
    assert protocol.MAX_FRAME_BYTES < engine.MAX_IPC_MESSAGE_BYTES < 2**32


def test_a_request_of_every_connection_fits_into_the_send_queue():
    n_clients = (
        connections.MAX_CONNECTIONS
        + connections.MAX_CONNECTIONS // server.RESERVED_CONNECTIONS_DIVISOR
    )
    n_messages = 3 * n_clients
    assert n_messages <= engine.IPC_SEND_QUEUE_MESSAGES


def test_a_worker_that_sends_heartbeats_does_not_count_as_hung():
    silence_s = engine.HEARTBEATS_IN_SILENCE * engine.HEARTBEAT_S
    assert silence_s < engine.WORKER_SILENCE_S
    assert silence_s < engine.LOAD_SILENCE_S


def test_a_prompt_has_half_the_time_after_which_a_silent_worker_is_hung():
    assert engine.PREPARE_TIMEOUT_S <= engine.WORKER_SILENCE_S / 2


def test_pauses_grow_up_to_the_time_that_the_breaker_stays_open():
    assert engine.RESTART_BACKOFF_S < engine.RESTART_BACKOFF_MAX_S
    assert engine.RESTART_BACKOFF_MAX_S <= engine.BREAKER_OPEN_S


def test_prefill_takes_smaller_steps_while_answers_stream():
    assert worker.PREFILL_CHUNK_MIN_TOKENS < worker.PREFILL_CHUNK_TOKENS


# --- the line decoder -------------------------------------------------------------


def test_the_largest_line_fits_many_times_into_the_memory_for_decoding():
    assert line_decoder.DECODE_MEMORY_BYTES > 20 * protocol.MAX_FRAME_BYTES


def test_an_error_message_is_cut_at_the_length_that_clients_get():
    assert line_decoder.MAX_FAILURE_CHARS > protocol.MAX_ERROR_CHARS
