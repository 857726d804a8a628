"""Model families, one dialect a module."""
