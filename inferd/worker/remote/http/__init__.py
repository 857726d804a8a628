"""HTTP with one remote: where it may go, and what is split out of an answer."""
