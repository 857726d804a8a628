"""Structured output with llguidance: build, check and compile grammars, constrain sampling."""
