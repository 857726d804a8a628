from queue import SimpleQueue
from threading import Event, Thread

import pytest

from inferd.ipc.worker import Paused
from inferd.limits.worker import UNSENT_STEPS
from inferd.worker.step_sender import StepSender

PATIENCE_S = 60.0


def pair(n):
    """Make two messages, of which the tickets tell the order."""
    return [Paused(ticket=2 * n), Paused(ticket=2 * n + 1)]


def test_steps_are_sent_in_order_beside_decoding_and_only_so_many_wait():
    sent: SimpleQueue[int] = SimpleQueue()
    may_send, is_put = Event(), Event()

    def send(message):
        assert may_send.wait(PATIENCE_S)
        sent.put(message.ticket)

    sender = StepSender(send)
    Thread(target=sender.send_all, daemon=True).start()

    def decode():
        for n in range(UNSENT_STEPS):
            sender.send(pair(n), beside=n != 1)
        is_put.set()
        sender.send(pair(UNSENT_STEPS), beside=True)
        sender.flush()

    decoding = Thread(target=decode, daemon=True)
    decoding.start()
    assert is_put.wait(PATIENCE_S)
    assert decoding.is_alive()
    assert sent.empty()
    may_send.set()
    decoding.join(PATIENCE_S)
    n_sent = 2 * (UNSENT_STEPS + 1)
    assert [sent.get_nowait() for _ in range(n_sent)] == [*range(n_sent)]


def test_a_daemon_that_is_gone_neither_blocks_decoding_nor_goes_unnoticed():
    def send(_):
        raise BrokenPipeError

    sender = StepSender(send)
    sending = Thread(target=sender.send_all, daemon=True)
    sending.start()
    sender.send(pair(0), beside=True)
    sending.join(PATIENCE_S)
    with pytest.raises(BrokenPipeError):
        sender.send(pair(1), beside=False)
    sender.flush()
