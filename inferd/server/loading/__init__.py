"""Loading on demand: carry out what ``residency`` decides, for the requests that wait."""
