import pytest

from inferd.backend import BackendCapabilities
from inferd.errors import BackendNotReadyError, BackendUnavailableError
from inferd.routing import route
from tests.fakes.backend import ScriptedBackend


def text(able):
    return able.generate


def pictures(able):
    return able.vision


def ready(name="ready", **abilities):
    return ScriptedBackend(name=name, capabilities=BackendCapabilities(**abilities))


def restarting(name="restarting", **abilities):
    backend = ready(name, **abilities)
    backend.go_down()
    return backend


def broken(reason="it is on fire", **abilities):
    backend = ready("broken", **abilities)
    backend.go_down(reason)
    return backend


@pytest.mark.parametrize(
    ("backends", "chosen"),
    [
        ([ready("a"), ready("b")], 0),
        ([restarting(), ready()], 1),
        ([broken(), ready()], 1),
        ([broken(), restarting(), ready()], 2),
        ([broken(), restarting("a"), restarting("b")], 1),
        ([restarting()], 0),
        ([ready(generate=False), restarting()], 1),
        ([ready(generate=False), broken(generate=False), ready("b")], 2),
    ],
)
def test_the_first_that_serves_soonest_is_chosen(backends, chosen):
    assert route(backends, text) is backends[chosen]


def test_only_what_can_do_all_that_is_asked_is_chosen():
    backends = [ready(), restarting(vision=True), ready("b")]
    assert route(backends, pictures) is backends[1]


def test_the_reason_of_the_first_that_could_have_is_given():
    backends = [broken("unable", generate=False), broken("on fire"), broken("drowned")]
    with pytest.raises(BackendNotReadyError, match=r"^backend not ready: on fire$"):
        route(backends, text)


@pytest.mark.parametrize("backends", [[], [ready()], [broken(), restarting()]])
def test_what_nobody_can_ever_do_is_refused(backends):
    with pytest.raises(BackendUnavailableError, match=r"^no backend available$"):
        route(backends, pictures)
