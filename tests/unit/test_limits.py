from inferd import limits
from inferd.server.limits import SPARE_PLACES_PART
from tests.unit.bounds import unexplained


def test_every_bound_says_what_it_is_for():
    assert unexplained(limits) == []


def test_a_request_as_long_as_a_frame_fits_into_a_message_to_a_worker():
    assert limits.MAX_FRAME_BYTES < limits.MAX_IPC_MESSAGE_BYTES < 2**32


def test_a_client_on_every_connection_fits_into_the_outbox():
    n_clients = limits.MAX_CONNECTIONS + limits.MAX_CONNECTIONS // SPARE_PLACES_PART
    n_messages = 3 * n_clients
    assert n_messages <= limits.IPC_OUTBOX_MESSAGES


def test_a_worker_that_beats_is_not_taken_for_hung():
    beats_s = limits.HEARTBEATS_IN_SILENCE * limits.HEARTBEAT_S
    assert beats_s < limits.WORKER_SILENCE_S
    assert beats_s < limits.LOAD_SILENCE_S


def test_a_prompt_has_half_the_time_after_which_a_silent_worker_is_hung():
    assert limits.PREPARE_TIMEOUT_S <= limits.WORKER_SILENCE_S / 2


def test_pauses_grow_up_to_the_time_that_the_breaker_stays_open():
    assert limits.RESTART_BACKOFF_S < limits.RESTART_BACKOFF_MAX_S
    assert limits.RESTART_BACKOFF_MAX_S <= limits.BREAKER_OPEN_S


def test_a_default_answer_fits_into_a_default_context():
    assert limits.DEFAULT_MAX_TOKENS < limits.DEFAULT_CONTEXT_TOKENS


def test_what_is_read_ahead_is_small_beside_a_frame():
    assert limits.READ_AHEAD_BYTES < limits.MAX_FRAME_BYTES / 10
    assert limits.MAX_COMMAND_BYTES < limits.READ_AHEAD_BYTES


def test_an_answer_of_the_embedded_width_fits_a_frame_however_many_texts_it_has():
    vector = 384 * limits.EMBED_NUMBER_BYTES
    assert limits.MAX_EMBED_INPUTS * vector < limits.MAX_FRAME_BYTES / 2


def test_no_number_of_a_vector_is_longer_than_it_is_counted():
    assert len("-1.2345678901234567e-38,") == limits.EMBED_NUMBER_BYTES


def test_what_clients_may_have_begun_to_send_is_bounded():
    small = limits.MAX_CONNECTIONS * limits.LARGE_LINE_BYTES
    large = limits.MAX_LARGE_LINES * limits.MAX_FRAME_BYTES
    assert small + large < 400 * 1024 * 1024
    assert limits.LARGE_LINE_BYTES < limits.READ_AHEAD_BYTES


def test_all_documents_fit_a_frame():
    assert limits.MAX_RERANK_BYTES < limits.MAX_FRAME_BYTES / 2
