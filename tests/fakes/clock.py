"""A clock of processor time that tests set."""


class Clock:
    """Fake clock of processor time."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now
