"""The model store: named models, as files that are found by their SHA-256."""
