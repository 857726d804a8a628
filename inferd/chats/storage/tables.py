"""The tables, as the newest revision of the schema has them."""

from typing import Final

from sqlalchemy import (
    BigInteger,
    Boolean,
    Column,
    ForeignKey,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    String,
    Table,
    Text,
    UniqueConstraint,
)

METADATA: Final = MetaData()

CHATS: Final = Table(
    "chats",
    METADATA,
    Column("id", String(32), primary_key=True),
    Column("owner", String(128), nullable=False),
    Column("created_us", BigInteger, nullable=False),
    Column("modified_us", BigInteger, nullable=False),
    Column("title", String(200)),
    Column("is_hidden", Boolean, nullable=False),
    Column("tail_id", String(32)),
    Column("settings", Text, nullable=False),
    Column("n_messages", Integer, nullable=False),
    Column("n_chars", BigInteger, nullable=False),
    Index("chats_by_owner", "owner", "modified_us", "id"),
)

MESSAGES: Final = Table(
    "messages",
    METADATA,
    Column("number", Integer, primary_key=True, autoincrement=True),
    Column("id", String(32), nullable=False, unique=True),
    Column(
        "chat_id",
        String(32),
        ForeignKey("chats.id", ondelete="CASCADE"),
        nullable=False,
        index=True,
    ),
    Column("parent_id", String(32)),
    Column("role", String(16), nullable=False),
    Column("state", String(24), nullable=False, index=True),
    Column("created_us", BigInteger, nullable=False),
    Column("text", Text, nullable=False),
    Column("thinking", Text, nullable=False),
    Column("details", Text, nullable=False),
    Column("runner", String(32)),
    sqlite_autoincrement=True,
)

ATTACHMENTS: Final = Table(
    "attachments",
    METADATA,
    Column("number", Integer, primary_key=True, autoincrement=True),
    Column("id", String(32), nullable=False, unique=True),
    Column(
        "chat_id",
        String(32),
        ForeignKey("chats.id", ondelete="CASCADE"),
        nullable=False,
        index=True,
    ),
    Column("message_id", String(32), nullable=False),
    Column("name", String(200), nullable=False),
    Column("media_type", String(32), nullable=False),
    Column("n_bytes", BigInteger, nullable=False),
    Column("digest", String(64), nullable=False),
    Column("data", LargeBinary, nullable=False),
    sqlite_autoincrement=True,
)
"""The data is behind all else, so that a row is read without it."""

DECISIONS: Final = Table(
    "decisions",
    METADATA,
    Column("number", Integer, primary_key=True, autoincrement=True),
    Column(
        "chat_id",
        String(32),
        ForeignKey("chats.id", ondelete="CASCADE"),
        nullable=False,
        index=True,
    ),
    Column("message_id", String(32), nullable=False),
    Column("call_id", String(128), nullable=False),
    Column("is_allowed", Boolean, nullable=False),
    UniqueConstraint("message_id", "call_id"),
    sqlite_autoincrement=True,
)
"""What owners of chats have said of calls that are to be confirmed."""

RUNNERS: Final = Table(
    "runners",
    METADATA,
    Column("id", String(32), primary_key=True),
    Column("seen_us", BigInteger, nullable=False),
)
"""The bridges that generate answers."""
