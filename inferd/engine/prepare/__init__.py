"""Rendering of prompts and compiling of grammars in a process that can be killed."""
