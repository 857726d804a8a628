"""Render prompts and check grammars in a process beside the worker; nothing here loads llama.cpp."""
