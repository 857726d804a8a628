from collections.abc import Sequence

import pytest
from hypothesis import given, strategies as st

from inferd.server.listen.activation import listen_fds
from inferd.service.activation import FIRST_FD, ActivationError
from inferd.surfaces import SURFACES
from tests.cases import each_case

SOCKETS_BY_FD_NAME = {each.fd_name: each.socket for each in SURFACES}
PID = 4711

LISTS = st.lists(st.sampled_from(sorted(SOCKETS_BY_FD_NAME)), min_size=1, unique=True)


def variables(names: Sequence[str], **others: str) -> dict[str, str]:
    return {
        "LISTEN_PID": str(PID),
        "LISTEN_FDS": str(len(names)),
        "LISTEN_FDNAMES": ":".join(names),
        **others,
    }


@pytest.mark.slow
@given(names=LISTS)
def test_each_name_has_the_descriptor_at_its_place(names):
    assert listen_fds(variables(names), PID) == {
        f"{name}.sock": fd for fd, name in enumerate(names, FIRST_FD)
    }


def test_every_socket_of_the_daemon_has_a_name():
    assert sorted(SOCKETS_BY_FD_NAME) == [
        "admin",
        "infer",
        "infer.embed",
        "infer.rerank",
        "infer.v2",
    ]


@each_case(
    "environ",
    [
        {},
        {"LISTEN_FDS": "1", "LISTEN_FDNAMES": "infer"},
        variables(["infer"], LISTEN_PID=""),
        variables(["infer"], LISTEN_PID=str(PID + 1)),
        variables(["nonsense"], LISTEN_PID=str(PID + 1)),
        variables([], LISTEN_FDS="0"),
    ],
)
def test_variables_for_another_process_are_ignored(environ):
    assert listen_fds(environ, PID) == {}


@each_case("variable", ["LISTEN_PID", "LISTEN_FDS"])
@each_case("text", ["x", "-1", "1.0", " 1", "٣"])
def test_an_invalid_number_is_refused(variable, text):
    with pytest.raises(ActivationError, match=f"{variable} is not a number"):
        listen_fds(variables(["infer"], **{variable: text}), PID)


def test_a_number_that_is_missing_is_refused():
    with pytest.raises(ActivationError, match="LISTEN_FDS is not a number"):
        listen_fds({"LISTEN_PID": str(PID)}, PID)


@pytest.mark.parametrize("n_fds", ["1", "3", "1000000000000"])
def test_there_must_be_as_many_names_as_descriptors(n_fds):
    with pytest.raises(ActivationError, match="LISTEN_FDNAMES has 2 names"):
        listen_fds(variables(["infer", "admin"], LISTEN_FDS=n_fds), PID)


@each_case("name", ["unknown", "", "INFER", "infer.sock", "infer v2"])
def test_an_unknown_name_is_refused_with_a_list_of_known_ones(name):
    with pytest.raises(ActivationError, match="one of infer, infer.v2,"):
        listen_fds(variables(["admin", name]), PID)


@pytest.mark.slow
@given(names=LISTS, data=st.data())
def test_a_name_that_is_there_twice_is_refused(names, data):
    again = data.draw(st.sampled_from(names))
    doubled = data.draw(st.permutations([*names, again]))
    with pytest.raises(ActivationError, match=f"two inherited .* called {again}$"):
        listen_fds(variables(doubled), PID)


@pytest.mark.slow
@given(
    environ=st.dictionaries(
        st.sampled_from(["LISTEN_PID", "LISTEN_FDS", "LISTEN_FDNAMES"]),
        st.one_of(st.text(max_size=20), st.just(str(PID)), st.just("1")),
    )
)
def test_any_variables_are_parsed_or_refused(environ):
    try:
        found = listen_fds(environ, PID)
    except ActivationError:
        return
    assert set(found) <= set(SOCKETS_BY_FD_NAME.values())
    assert sorted(found.values()) == list(range(FIRST_FD, FIRST_FD + len(found)))
