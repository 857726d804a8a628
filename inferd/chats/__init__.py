"""Chats that are kept: what they are, how a conversation is cut, and where they are stored.

=========  =======================================================================
module     what it is
=========  =======================================================================
records    chats and messages, as they are stored
failures   why something cannot be stored or found
branches   the conversation that leads to a message
prompt     the messages that a model reads of it
told_calls an answer with calls of tools, as it reads that
fitting    what is left out of a conversation that does not fit
titles     the title of a chat
estimate   how long an answer waits
documents  chats and messages as they are served and exported
file_types what a picture or recording is, by its first bytes
storage    the database: SQLite by default, PostgreSQL by URL
store      the same for programs on trio
=========  =======================================================================

All but the last two are pure.
"""
