import pytest

from inferd.models.pull.errors import PullError
from inferd.models.pull.source import HttpsSource, HubSource, parse_source
from tests.cases import each_case

SHA256 = "0123456789abcdef" * 4


@each_case(
    ("text", "source"),
    [
        ("hf:a/b", HubSource("a/b")),
        ("hf:a/b:Q4_K_M", HubSource("a/b", quant="Q4_K_M")),
        ("hf:a/b/c.gguf", HubSource("a/b", file="c.gguf")),
        ("hf:a.x/b-1/d/c.gguf@v1.0", HubSource("a.x/b-1", "", "d/c.gguf", "v1.0")),
        ("hf:a/b:Q8_0@refs/pr/2", HubSource("a/b", "Q8_0", "", "refs/pr/2")),
        ("hf:a/b@main", HubSource("a/b", revision="main")),
    ],
)
def test_a_repository_is_read_and_written_alike(text, source):
    assert parse_source(text) == source
    assert str(source) == text


def test_an_address_has_its_digest_and_a_name():
    source = parse_source("https://h:8443/a/My%20Model.Q4.gguf?x=1", SHA256.upper())
    assert source == HttpsSource("https://h:8443/a/My%20Model.Q4.gguf?x=1", SHA256)
    assert source.file_name == "My Model.Q4.gguf"
    assert source.default_name == "My-Model.Q4"


@each_case(
    ("text", "sha256", "words"),
    [
        ("https://h/m.gguf", None, "needs the SHA-256"),
        ("https://h/m.gguf", "0" * 63, "64 hexadecimal digits"),
        ("https://h/m.gguf", "g" * 64, "64 hexadecimal digits"),
        ("https://u:p@h/m.gguf", SHA256, "password"),
        ("https://h/", SHA256, "names no file"),
        ("https:///m.gguf", SHA256, "not an address"),
        ("https://h:x/m.gguf", SHA256, "not an address"),
        ("https://[h/m.gguf", SHA256, "not an address"),
        ("http://h/m.gguf", SHA256, "not encrypted"),
        ("ftp://h/m.gguf", SHA256, "not a source"),
        ("m.gguf", None, "not a source"),
        ("hf:a", None, "not a source"),
        ("hf:a/b/../c.gguf", None, "not a source"),
        ("hf:../b", None, "not a source"),
        ("hf:a/b/c.gguf@../x", None, "not a source"),
        ("hf:a/b:Q4/c.gguf", None, "not a source"),
        ("hf:a/b", SHA256, "goes with an address"),
        ("hf:a/b\n", None, "visible"),
        ("hf:a/\x1b[2J", None, "visible"),
        ("hf:a/" + "b" * 2048, None, "up to 2048"),
    ],
)
def test_what_is_no_source_is_told_with_what_to_type(text, sha256, words):
    with pytest.raises(PullError, match=words) as raised:
        parse_source(text, sha256)
    assert "\n" not in str(raised.value)
    assert raised.value.hint or "password" in words or "not an address" in words


@each_case(
    ("text", "source"),
    [
        ("a/b-GGUF", "hf:a/b-GGUF"),
        ("hf.co/a/b-GGUF:Q8_0", "hf:a/b-GGUF:Q8_0"),
        ("huggingface.co/a/b-GGUF", "hf:a/b-GGUF"),
        ("https://huggingface.co/a/b-GGUF", "hf:a/b-GGUF"),
        ("https://huggingface.co/a/b/tree/main", "hf:a/b"),
        (
            "https://huggingface.co/a/b/resolve/main/d/c.gguf?download=true",
            "hf:a/b/d/c.gguf",
        ),
        ("https://hf.co/a/b/blob/v1.0/c.gguf", "hf:a/b/c.gguf@v1.0"),
    ],
)
def test_a_repository_as_others_name_it_is_told_as_it_is_named_here(text, source):
    with pytest.raises(PullError) as raised:
        parse_source(text)
    assert raised.value.hint == f"inferd model pull {source}"
    assert str(parse_source(source)) == source
