"""Tools whose calls are to fit their schemas, where nothing holds calls to them."""

from collections.abc import Iterable

from inferd.limits.bridge import MAX_STATED_CHARS


def unenforced(places: Iterable[str], *, is_forced: bool, has_form: bool) -> str:
    """Name the requests for strictness that have no effect; empty for none.

    The daemon holds an answer to the schemas of tools where the answer has to be a call, or
    else text of a given form. Where any text may come, a call is as the model writes it.

    Args:
        places: the fields that ask for it.
        is_forced: whether the answer must have a call, or may have none.
        has_form: whether the text has a form.

    Bounds: ``MAX_STATED_CHARS``.
    """
    return "" if is_forced or has_form else ", ".join(places)[:MAX_STATED_CHARS]
