"""The list: each module has a number, a name and ``run``, which fills its context."""
