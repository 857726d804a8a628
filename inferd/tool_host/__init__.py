"""The process beside the bridge that speaks MCP with one server of tools, for one answer.

``__main__`` runs confined, starts the server in the same sandbox, and is told by the bridge what
to call; ``protocol`` speaks with the server, through the package ``mcp``, over
``lines``; ``messages`` are those
of the bridge, and alone imported by it.
"""
