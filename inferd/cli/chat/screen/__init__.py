"""How an answer is drawn while it comes, so that nothing flickers or is written twice.

=============  =====================================================================
module         what it is
=============  =====================================================================
blocks         Markdown that still comes, split into blocks; pure
rendering      a block as lines for the terminal, by rich; pure
live_region    the last lines, which may still change; pure
answer_view    the parts of an answer, and where its request is; pure
painter        writes to the terminal, whose size may change
=============  =====================================================================
"""
