"""The worker process: the only code that loads native model libraries.

Each kind has a program, run as ``python -m PROGRAM FD PARENT_PID``, such as
``inferd.worker.llama``; nothing imports it. One thread reads messages, two prepare prompts,
one decodes; only the last touches a context.
"""
