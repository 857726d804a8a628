from hypothesis import given, strategies as st

from inferd.client.connection.pool import IdleConnections


@given(st.integers(1, 4), st.lists(st.tuples(st.sampled_from("ab"), st.booleans())))
def test_no_more_connections_are_open_than_the_limit(limit, uses):
    """One at a time is taken; each is of the kind that was asked for."""
    pool = IdleConnections[str, str](limit)
    is_open: set[str] = set()
    for number, (kind, is_kept) in enumerate(uses):
        connection, surplus = pool.take(kind)
        is_open.discard(surplus or "")
        assert connection is None or connection in is_open
        connection = connection or f"{kind}{number}"
        assert connection.startswith(kind)
        is_open.add(connection)
        assert len(is_open) <= limit
        if is_kept:
            pool.give_back(kind, connection)
        else:
            pool.discard()
            is_open.remove(connection)
    assert {*pool.clear()} == is_open
