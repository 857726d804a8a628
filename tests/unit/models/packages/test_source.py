import pytest

from inferd.models.embedded import CHAT, EMBEDDED_MODELS
from inferd.models.packages.source import plan_package
from inferd.models.pull.errors import PullError
from tests.cases import each_case

H, P = "a" * 64, "b" * 64


def members_of(text):
    plan = plan_package(text, sha256=H)
    return [
        (package.requirement, [member.path for member in package.members])
        for package in plan.packages
    ]


@each_case(
    ("text", "members", "file_name"),
    [
        ("a==1#d/m.gguf", [("a==1", ["d/m.gguf"])], "m.gguf"),
        ("a==1#m.p1+d/m.p2", [("a==1", ["m.p1", "d/m.p2"])], "m.p1"),
        ("a==1#d/m.gguf.part*", [("a==1", ["d/m.gguf.part*"])], "m.gguf"),
        (
            "a==1#m.gguf.part1+b-c==2.0.post1#m.gguf.part2",
            [("a==1", ["m.gguf.part1"]), ("b-c==2.0.post1", ["m.gguf.part2"])],
            "m.gguf",
        ),
        ("a==1#m.bin.001+m.bin.002", [("a==1", ["m.bin.001", "m.bin.002"])], "m.bin"),
    ],
)
def test_a_source_is_split_into_packages_with_members_in_order(
    text, members, file_name
):
    assert members_of(f"package:{text}") == members
    plan = plan_package(f"package:{text}", sha256=H)
    assert plan.file_name == file_name
    names = {each.name for package in plan.packages for each in package.members}
    assert names == {file_name}
    assert (plan.sha256, plan.source) == (H, f"package:{text}")


@each_case(
    "text",
    [
        *("package:", "package:a", "package:a#m", "package:a==1", "package:a==1#"),
        *("package:m.gguf", "package:a==1#m++n", "package:a>=1#m", "package:a==1#m n"),
        *("package:a==1#m#n", "package:-a==1#m", "package:a==1 #m", "package:a== 1#m"),
        *(
            "package:a==1#../m",
            "package:a==1#/m",
            "package:a==1#d//m",
            "package:a==1#.",
            "package:a==1#a/*...",
            "package:a==1#" + "m" * 256,
        ),
        "package:" + "a" * 3000 + "==1#m",
        "package:a==1#" + "+".join(["m"] * 257),
        *("embedded:", "embedded:no"),
    ],
)
def test_what_is_not_a_source_is_refused_in_one_line(text):
    with pytest.raises(PullError) as caught:
        plan_package(text, sha256=None if text.startswith("embedded") else H)
    assert "\n" not in caught.value.text


def test_nothing_is_planned_without_a_digest():
    with pytest.raises(PullError, match="whose SHA-256 is not known before") as caught:
        plan_package("package:a==1#m.gguf")
    assert caught.value.hint.startswith(
        "inferd model pull 'package:a==1#m.gguf' --sha256 SHA256, of the model file"
    )
    with pytest.raises(PullError, match="has 64 hexadecimal digits"):
        plan_package("package:a==1#m.gguf", sha256="12")


def test_the_digest_may_be_that_of_a_single_package():
    plan = plan_package("package:a==1#m.gguf", package_sha256=P.upper())
    assert (plan.packages[0].sha256, plan.sha256) == (P, None)
    with pytest.raises(PullError, match="that of one package, and there are 2"):
        plan_package("package:a==1#m.part1+b==1#m.part2", package_sha256=P)


def test_the_file_of_an_embedded_model_is_known():
    [package] = CHAT.packages
    text = f"package:{package.requirement}#{package.members[0].path}"
    assert plan_package(text).sha256 == CHAT.sha256


@each_case("model", EMBEDDED_MODELS.values(), ids=EMBEDDED_MODELS)
def test_an_embedded_model_has_its_own_name_and_digests(model):
    plan = plan_package(f"embedded:{model.name}")
    assert (plan.name, plan.source) == (model.reference, model.reference)
    assert (plan.sha256, plan.recipe) == (model.sha256, model.recipe)
    assert plan.revision.split() == [each.requirement for each in model.packages]
    for options in ({"name": "mine"}, {"sha256": H}, {"package_sha256": H}):
        with pytest.raises(PullError, match="has its own name and SHA-256"):
            plan_package(f"embedded:{model.name}", **options)
