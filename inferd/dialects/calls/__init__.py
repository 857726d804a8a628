"""Tool-call syntaxes: reading and writing calls, and the grammars that enforce them."""
