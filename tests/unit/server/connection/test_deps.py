from inferd.limits.connections import MAX_LARGE_LINES
from inferd.limits.server import MAX_CLIENT_DESCRIPTORS
from tests.fakes.serving import LocalServer


def test_default_dependencies_are_not_shared():
    one, other = LocalServer().deps, LocalServer().deps
    assert one.loop is not other.loop
    assert one.fd_quota is not other.fd_quota
    assert one.fd_quota.max_fds == MAX_CLIENT_DESCRIPTORS
    assert one.line_limiter.limit == MAX_LARGE_LINES
