"""The chats of earlier sessions: one file each, which only its user may read.

=========  ==========================================================================
module     what it is
=========  ==========================================================================
lines      a chat as lines of JSON, and what is left of a file that was cut; pure
chat_file  the file of one chat, which is written to while its chat goes on
folder     all of them: listed, searched, removed, and how many there may be
prompts    what was typed, for the line editor
=========  ==========================================================================
"""
