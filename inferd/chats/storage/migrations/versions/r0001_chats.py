"""Chats, messages, and the bridges that generate answers."""

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None


def upgrade() -> None:
    """Create the tables."""
    op.create_table(
        "chats",
        sa.Column("id", sa.String(32), primary_key=True),
        sa.Column("owner", sa.String(128), nullable=False),
        sa.Column("created_us", sa.BigInteger, nullable=False),
        sa.Column("modified_us", sa.BigInteger, nullable=False),
        sa.Column("title", sa.String(200)),
        sa.Column("is_hidden", sa.Boolean, nullable=False),
        sa.Column("tail_id", sa.String(32)),
        sa.Column("settings", sa.Text, nullable=False),
        sa.Column("n_messages", sa.Integer, nullable=False),
        sa.Column("n_chars", sa.BigInteger, nullable=False),
    )
    op.create_index("chats_by_owner", "chats", ["owner", "modified_us", "id"])
    op.create_table(
        "messages",
        sa.Column("number", sa.Integer, primary_key=True, autoincrement=True),
        sa.Column("id", sa.String(32), nullable=False, unique=True),
        sa.Column(
            "chat_id",
            sa.String(32),
            sa.ForeignKey("chats.id", ondelete="CASCADE"),
            nullable=False,
        ),
        sa.Column("parent_id", sa.String(32)),
        sa.Column("role", sa.String(16), nullable=False),
        sa.Column("state", sa.String(24), nullable=False),
        sa.Column("created_us", sa.BigInteger, nullable=False),
        sa.Column("text", sa.Text, nullable=False),
        sa.Column("thinking", sa.Text, nullable=False),
        sa.Column("details", sa.Text, nullable=False),
        sa.Column("runner", sa.String(32)),
        sqlite_autoincrement=True,
    )
    op.create_index("ix_messages_chat_id", "messages", ["chat_id"])
    op.create_index("ix_messages_state", "messages", ["state"])
    op.create_table(
        "runners",
        sa.Column("id", sa.String(32), primary_key=True),
        sa.Column("seen_us", sa.BigInteger, nullable=False),
    )


def downgrade() -> None:
    """Drop the tables, and all chats with them."""
    for table in ("runners", "messages", "chats"):
        op.drop_table(table)
