"""The database of chats, through SQLAlchemy; its functions block, and run in a thread."""
