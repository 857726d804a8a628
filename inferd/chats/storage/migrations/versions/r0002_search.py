"""The index of the words of finished messages."""

from alembic import op

revision = "0002"
down_revision = "0001"


def upgrade() -> None:
    """Create the index, with what is there already."""
    if op.get_context().dialect.name == "sqlite":
        op.execute("CREATE VIRTUAL TABLE message_search USING fts5(text)")
        op.execute(
            "INSERT INTO message_search (rowid, text) SELECT number, text FROM messages "
            "WHERE state NOT IN ('pending', 'in_progress')"
        )
    else:
        op.execute(
            "CREATE INDEX message_search ON messages USING gin "
            "(to_tsvector('simple', left(text, 200000))) "
            "WHERE state NOT IN ('pending', 'in_progress')"
        )


def downgrade() -> None:
    """Drop it."""
    kind = "TABLE" if op.get_context().dialect.name == "sqlite" else "INDEX"
    op.execute(f"DROP {kind} message_search")
