from inferd.limits import MAX_LARGE_LINES
from inferd.server.limits import MAX_CLIENT_DESCRIPTORS
from tests.fakes.serving import House


def test_each_daemon_has_surroundings_of_its_own():
    one, other = House().around, House().around
    assert one.loop is not other.loop
    assert one.custody is not other.custody
    assert one.custody.max_fds == MAX_CLIENT_DESCRIPTORS
    assert one.large_lines.n_turns == MAX_LARGE_LINES
