"""The worker process: the only code that loads native model libraries.

Run as ``python -m inferd.worker FD PARENT_PID``; nothing imports it. One thread reads
messages, two prepare prompts, one decodes; only the last touches a context.
"""
