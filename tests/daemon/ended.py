"""The record of a request that has ended, from a real daemon."""

from tests.daemon.harness import DaemonProcess, Frame, eventually


def ended_record(daemon: DaemonProcess, request_id: str) -> Frame:
    """Ask until a request has ended: its answer is there before its record."""
    operator = daemon.admin()
    found: list[Frame] = []

    def has_ended() -> bool:
        found[:] = operator.order("explain", id=request_id).get("explained", [])
        return bool(found) and found[0]["phase"] == "ended"

    assert eventually(has_ended)
    return found[0]
