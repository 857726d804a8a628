"""``inferd model``: one module per command."""
