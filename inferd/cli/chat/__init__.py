"""``inferd chat``: a conversation in a terminal.

============  ====================================================================
module        what it is
============  ====================================================================
chat          the options, and what is checked before anything is drawn
opening       how a session begins: its client, its chat
session       prompts are read and answered, one after another
state         what a session knows, and what of it is kept
editor        the line editor: keys, pastes, earlier prompts
answers       what fits of a chat is asked, and what comes is drawn and kept
questions     messages, files and options of a request
asking        a thread reads an answer, and Ctrl-C ends it
faults        what can be done about a failure
conversation  a chat with all its branches; pure
screen        how an answer is drawn while it comes
history       the chats of earlier sessions
commands      what begins with ``/``
============  ====================================================================

What needs the packages of the extra ``chat`` is imported by ``opening`` alone.
"""
