"""Errors of model files whose headers are read."""


class ModelFileError(Exception):
    """A file is no model that can be loaded; the text says why, without its path."""


class WrongFormatError(ModelFileError):
    """A file is not of the format that was expected.

    Args:
        expected: name of the format, as in a ``FileFormat``.
        magic: the first bytes of the file.
    """

    def __init__(self, expected: str, magic: bytes) -> None:
        super().__init__(f"not a {expected} file")
        self.magic = magic
