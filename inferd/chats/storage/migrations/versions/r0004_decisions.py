"""What owners of chats have said of calls that are to be confirmed."""

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"


def upgrade() -> None:
    """Create the table."""
    op.create_table(
        "decisions",
        sa.Column("number", sa.Integer, primary_key=True, autoincrement=True),
        sa.Column(
            "chat_id",
            sa.String(32),
            sa.ForeignKey("chats.id", ondelete="CASCADE"),
            nullable=False,
        ),
        sa.Column("message_id", sa.String(32), nullable=False),
        sa.Column("call_id", sa.String(128), nullable=False),
        sa.Column("is_allowed", sa.Boolean, nullable=False),
        sa.UniqueConstraint("message_id", "call_id"),
        sqlite_autoincrement=True,
    )
    op.create_index("ix_decisions_chat_id", "decisions", ["chat_id"])


def downgrade() -> None:
    """Drop it."""
    op.drop_table("decisions")
