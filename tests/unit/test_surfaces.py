"""The table of surfaces, and what has to agree with it."""

import re
from pathlib import Path
from typing import Any, cast

import msgspec
import pytest

from inferd import surfaces
from inferd.backend.capabilities import BackendCapabilities
from inferd.config.settings import AccessSettings, ListenSettings
from inferd.line_decoder.kind import LineKind
from inferd.line_decoder.kinds import KINDS
from inferd.server.services.endpoints import BINDINGS, surfaces_of
from inferd.surfaces import (
    SURFACES,
    Surface,
    check_surfaces,
    inference_surfaces,
)
from tests.cases import each_case

ROOT = Path(__file__).parents[2]


@each_case(
    ("surface", "name", "socket", "mode"),
    [
        (surfaces.INFER, "infer", "infer.sock", 0o660),
        (surfaces.V2, "v2", "infer.v2.sock", 0o660),
        (surfaces.EMBED, "embed", "infer.embed.sock", 0o660),
        (surfaces.RERANK, "rerank", "infer.rerank.sock", 0o660),
        (surfaces.ADMIN, "admin", "admin.sock", 0o600),
    ],
)
def test_a_socket_has_the_name_and_mode_that_clients_know(surface, name, socket, mode):
    assert (surface.name, surface.socket, surface.mode) == (name, socket, mode)


@each_case(
    ("name", "socket"),
    [
        ("", "x.sock"),
        ("x", ".sock"),
        ("x", "x"),
        ("x", "../x.sock"),
        ("x", "x:y.sock"),
        ("x y", "x.sock"),
        ("x", "x.sock\n"),
        ("X", "x.sock"),
    ],
)
def test_a_name_that_no_path_or_unit_could_have_is_refused(name, socket):
    with pytest.raises(ValueError, match="cannot have socket"):
        Surface(name=name, socket=socket, title="x")


@pytest.mark.parametrize(
    ("name", "socket", "twice"),
    [("embed", "x.sock", "embed"), ("x", "infer.embed.sock", "infer.embed.sock")],
)
def test_two_surfaces_share_neither_a_name_nor_a_socket(name, socket, twice):
    check_surfaces([*SURFACES, Surface(name="x", socket="x.sock", title="x")])
    with pytest.raises(ValueError, match=f"two surfaces are called {twice}"):
        check_surfaces([*SURFACES, Surface(name=name, socket=socket, title="x")])


def test_every_surface_that_takes_requests_is_bound_in_the_order_of_the_table():
    assert list(surfaces_of(BINDINGS)) == list(SURFACES)
    assert [each.surface for each in BINDINGS] == inference_surfaces()


@each_case("binding", BINDINGS, ids=lambda each: each.surface.name)
def test_large_lines_of_a_surface_are_decoded_as_its_other_lines(binding):
    kind = binding.large_lines
    assert KINDS[kind.name] is kind
    assert cast("LineKind[Any, Any]", kind).decode is binding.decode
    assert kind.takes_appends is binding.takes_media


def test_every_setting_of_a_socket_is_about_a_surface():
    """A surface without a key is on, and has the access rule of ``infer``.

    Gateways are no surface: they are named for all of them.
    """
    names = {each.name for each in SURFACES}
    switches = {
        field.name
        for field in msgspec.structs.fields(ListenSettings)
        if field.type is bool
    }
    assert switches <= names
    assert set(AccessSettings.__struct_fields__) == names | {"gateways"}
    others = set(ListenSettings.__struct_fields__) - switches
    assert not others & names


def test_what_the_command_line_asks_for_is_a_capability_and_can_be_switched_off():
    offered = [each.name for each in SURFACES if each.offers]
    assert offered == ["embed", "rerank"]
    assert set(offered) <= set(BackendCapabilities.__struct_fields__)
    assert set(offered) <= set(ListenSettings.__struct_fields__)


@each_case("surface", SURFACES, ids=lambda each: each.name)
@each_case("document", ["docs/operating.md", "protocol/README.md"])
def test_a_table_of_sockets_has_each_with_its_mode(document, surface):
    row = re.compile(
        rf"^\| `{re.escape(surface.socket)}`[^|]*\| {surface.mode:04o} \|", re.MULTILINE
    )
    assert len(row.findall((ROOT / document).read_text())) == 1


@pytest.mark.parametrize("part", ["name", "socket", "title"])
def test_a_surface_lacks_no_part(part):
    given: dict[str, Any] = {"name": "x", "socket": "x.sock", "title": "x"}
    Surface(**given)
    del given[part]
    with pytest.raises(TypeError, match=part):
        Surface(**given)
