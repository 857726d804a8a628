"""Peer credentials, which user a uid counts as, and who may use which socket."""
