"""Structured output with llguidance: build, check and compile grammars, constrain sampling.

For schemas in JSON answers and JSON calls, llguidance decides which keywords are enforced; for
calls in another syntax, ``dialects.schema.subset`` does.
"""
