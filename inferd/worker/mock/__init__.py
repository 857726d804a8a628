"""A scripted backend without a model, for tests of clients."""
