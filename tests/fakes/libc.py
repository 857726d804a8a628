"""A C library that changes nothing about the process."""


class NoLibrary:
    """Takes what is asked, or fails, and does nothing."""

    @staticmethod
    def prctl(*_: int) -> int:
        return 0

    @staticmethod
    def capget(*_: object) -> int:
        return -1
