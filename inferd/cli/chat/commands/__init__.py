"""What begins with ``/`` in a chat.

=========  ==========================================================================
module     what it is
=========  ==========================================================================
parsing    the commands, and what a line asks for; pure
model      which model answers, and how
turns      answers again, prompts changed, branches
kept       chats of earlier sessions
files      pictures, recordings and texts that go with a prompt
catalogue  which function carries a command out
=========  ==========================================================================
"""
