"""The processes that decode files of the bridge's callers into pixels and samples.

A file may be hostile, and what decodes it is native code. So one process imports the libraries,
confines itself and reads no file; it forks for each, and the fork decodes one, confined further,
and exits. Nothing of one caller's file is left for the next. Nothing imports this package but
the bridge its messages; ``inferd.bridge.media.fork_server`` starts it.
"""
