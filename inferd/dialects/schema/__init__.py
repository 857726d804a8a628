"""JSON Schemas of tool arguments: reading them, and the subset that grammars enforce."""
