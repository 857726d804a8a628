import gzip
import hashlib
import json
import re

from inferd.bridge.page.files import HEADERS, INDEX, MEDIA_TYPES, STATIC, read_files
from inferd.bridge.translation.failures import STATUS, Reason

VENDOR = STATIC / "vendor"
ADDRESS = re.compile(r"""(?:https?:)?//[\w.-]+\.\w+|url\(|@import""")
IMPORT = re.compile(r"""(?:from|import) "([^"]+)";""")


def own_files() -> dict[str, str]:
    """Give the texts of all files that are not of others."""
    return {
        name: file.data.decode()
        for name, file in read_files().items()
        if not name.startswith("vendor/") and not name.endswith(".png")
    }


def test_modules_of_others_are_those_that_are_listed_unchanged():
    listed = json.loads((VENDOR / "vendored.json").read_text())
    files = {
        name: each["sha256"]
        for package in listed.values()
        for name, each in package["files"].items()
    }
    found = {
        path.name: path.read_bytes()
        for path in VENDOR.iterdir()
        if path.name != "vendored.json" and path.suffix != ".mts"
    }
    assert {
        name: hashlib.sha256(data).hexdigest() for name, data in found.items()
    } == files
    for package in listed.values():
        assert package["integrity"].startswith("sha512-")
        assert any(name.endswith(".LICENSE") for name in package["files"])


def test_each_code_of_the_bridge_has_advice_of_its_own_or_of_its_status():
    text = own_files()["service/failure.js"]
    by_code, by_status = (
        set(re.findall(r"^  (\w+):", part.partition("};")[0], re.MULTILINE))
        for part in text.split("*/\nconst BY_")[1:]
    )
    general = {Reason.INTERNAL, Reason.NOT_DONE}  # whose status says enough
    for reason, status in STATUS.items():
        if status >= 429 and reason not in general:
            assert reason in by_code, reason
        assert (
            reason in by_code or status in {400, 405, 502} or str(status) in by_status
        )


def test_no_file_of_the_page_names_another_address():
    for name, text in own_files().items():
        without = text.replace("http://www.w3.org/2000/svg", "")
        assert not ADDRESS.search(without), name


def test_what_modules_import_is_there():
    files = read_files()
    for name, text in own_files().items():
        for imported in IMPORT.findall(text) if name.endswith(".js") else ():
            path = (STATIC / name).parent / imported
            target = path.resolve().relative_to(STATIC).as_posix()
            assert target in files, (name, imported)


def test_the_index_has_no_script_style_or_handler_of_its_own():
    text = read_files()[INDEX].data.decode()
    assert not re.search(r"<style|<script(?! type=\"module\" src=\"page/)", text)
    assert not re.search(r"\s(on\w+|style)=", text)


def test_own_modules_make_no_markup_and_run_no_text():
    ways = re.compile(
        r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\(|new Function"
        r"|createContextualFragment|dangerouslySetInnerHTML|setHTML|srcdoc"
    )
    for name, text in own_files().items():
        assert not ways.search(text), name


def test_modules_are_small():
    for name, text in own_files().items():
        if name.endswith(".js"):
            assert text.count("\n") <= 400, name
            assert text.startswith("/**"), name


def test_the_policy_allows_nothing_but_the_pages_own_files():
    policy = dict(
        rule.split(" ", 1) for rule in HEADERS["content-security-policy"].split("; ")
    )
    assert policy["default-src"] == policy["frame-ancestors"] == "'none'"
    assert (
        policy["script-src"] == policy["style-src"] == policy["connect-src"] == "'self'"
    )
    assert policy["trusted-types"] == policy["form-action"] == "'none'"
    assert "unsafe" not in HEADERS["content-security-policy"]


def test_a_file_is_sent_as_what_it_is():
    files = read_files()
    assert {name.rpartition(".")[2] for name in files} <= {
        suffix.removeprefix(".") for suffix in MEDIA_TYPES
    }
    assert not any("LICENSE" in name for name in files)
    index = files[INDEX]
    assert gzip.decompress(index.compressed) == index.data
    assert index.tag != files["main.js"].tag


def test_the_page_is_small_enough_for_a_slow_network():
    assert sum(len(file.compressed) for file in read_files().values()) < 100_000
