import pytest

from inferd.client.media import PACKAGES, MissingExtraError


@pytest.mark.parametrize(("module", "what"), PACKAGES.items())
def test_what_is_missing_is_one_line_with_what_to_type(module, what):
    words = str(MissingExtraError(module))
    assert words == (f"decoding {what} needs a package: pip install 'inferd[media]'")
