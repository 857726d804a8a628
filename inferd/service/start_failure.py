"""How a service tells that its daemon did not start."""

from typing import Final

DID_NOT_START: Final = "did not start: "
"""How the status begins that a daemon reports to systemd when it cannot start."""
