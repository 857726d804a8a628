"""Workers that load no model: they ask an engine elsewhere, and alone have its key.

A job becomes an HTTP request, and the answer the pieces that a model would have generated, so
that the daemon treats them alike: reasoning and tool calls between the markers of the
``generic`` dialect, which its parser knows. The packages in here, one for each API, translate
without I/O.
"""
