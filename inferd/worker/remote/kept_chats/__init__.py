"""Conversations that another daemon's bridge keeps: it is sent what is new alone."""
