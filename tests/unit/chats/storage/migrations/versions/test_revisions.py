from sqlalchemy import create_engine, inspect

from inferd.chats.storage.schema import REVISIONS, current_revision, roll_back, upgrade
from inferd.chats.storage.tables import METADATA


def test_the_newest_revision_has_the_tables_and_each_can_be_rolled_back():
    engine = create_engine("sqlite://")
    with engine.begin() as connection:
        upgrade(connection)
        assert current_revision(connection) == REVISIONS[-1]
        found = inspect(connection)
        for table in METADATA.sorted_tables:
            columns = {each["name"] for each in found.get_columns(table.name)}
            assert columns == {each.name for each in table.columns}
            indexed = {each["name"] for each in found.get_indexes(table.name)}
            assert indexed == {each.name for each in table.indexes}
        for revision in REVISIONS[-2::-1]:
            roll_back(connection, revision)
            assert current_revision(connection) == revision
        roll_back(connection, "base")
        assert inspect(connection).get_table_names() == ["alembic_version"]
    engine.dispose()
