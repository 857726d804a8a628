"""Model families, one dialect a module; ``hermes`` is a syntax that several of them use."""
