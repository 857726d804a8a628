"""Tools that answers of chats call: of servers (MCP) that the operator has configured.

``rounds`` carries out the calls of an answer; ``session`` runs a server, confined, for one answer; ``servers`` knows what each offers;
``offer`` gives tools the names that a model sees, and is pure.
"""
