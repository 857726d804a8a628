"""Conversations and their answers, as far as several APIs have them alike.

Refusals, the turns of stricter APIs, and the end of answers, for the packages of APIs beside;
and the messages to the daemon.
"""
