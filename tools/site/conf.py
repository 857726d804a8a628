"""The documents as a site, for Sphinx: `make docs`.

Pages are read where they are: the source directory is the checkout, of which `include_patterns`
names what belongs to the site. No page of the site asks another host for anything.
"""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from pygments.lexers.data import JsonLexer  # type: ignore[import-untyped]
from pygments.token import Error, Text  # type: ignore[import-untyped]
from sphinx.application import Sphinx
from sphinx.environment import BuildEnvironment

from inferd import __version__

ROOT: Final = Path(__file__).resolve().parents[2]
RECORD: Final = re.compile(r"adr/\d{4}-")
"""A decision; `adr/README.md` lists them, so the sidebar does not."""

MENDED: Final = {
    "body": {
        "<pre>": '<pre tabindex="0">',
        'class="table-wrapper': 'tabindex="0" class="table-wrapper',
    },
    "furo_navigation_tree": {'role="heading"': 'role="heading" aria-level="2"'},
}
"""What is replaced in parts of each page, whose markup is Sphinx's or Furo's."""
AFTER_THE_THEME: Final = 900

# --- what belongs to it ---------------------------------------------------------------

project = "inferd"
version = release = __version__
copyright = "The inferd authors"  # noqa: A001  # Sphinx's name
root_doc = "docs/index"
include_patterns = [
    *("README.md", "CHANGELOG.md", "CONTRIBUTING.md", "THREAT_MODEL.md"),
    *("docs/*.md", "adr/*.md", "protocol/*.md"),
    *("protocol/vectors/*.md", "protocol/examples/*.md", "protocol/examples/cpp/*.md"),
]
extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon"]
myst_heading_anchors = 6
nitpick_ignore_regex = [("py:.*", ".*")]  # types of the standard library are elsewhere

# --- the reference of the client ------------------------------------------------------

default_role = "literal"
autodoc_default_options = {"members": True, "show-inheritance": True}
autodoc_member_order = "bysource"
autodoc_typehints = "description"
autodoc_typehints_description_target = "documented_params"
autodoc_preserve_defaults = True
python_use_unqualified_type_names = True
python_display_short_literal_types = True
napoleon_numpy_docstring = False
napoleon_custom_sections = [
    *(("Cancellation", "params_style"), ("Ownership", "params_style")),
    ("Bounds", "params_style"),
]

# --- how it looks ---------------------------------------------------------------------

html_theme = "furo"
html_title = "inferd"
html_static_path = ["static"]
html_css_files = ["site.css"]
templates_path = ["templates"]
html_additional_pages = {"index": "to_first_page.html"}
html_theme_options = {"navigation_with_keys": False}
html_copy_source = False
html_show_search_summary = False  # they are fetched, which browsers refuse of files
html_show_sourcelink = False
html_show_sphinx = False
html_use_index = False
html_domain_indices = False
pygments_style = "a11y-high-contrast-light"
pygments_dark_style = "a11y-high-contrast-dark"


class FrameLexer(JsonLexer):  # type: ignore[misc]  # it has no types
    """JSON with `…` where a part is left out, as the documents show frames."""

    def get_tokens_unprocessed(self, text: str) -> Iterator[tuple[int, object, str]]:
        """Take what is left out for text."""
        for index, kind, value in super().get_tokens_unprocessed(text):
            yield index, Text if kind is Error else kind, value


def leave_out_of_sidebar(app: Sphinx, document: object) -> None:
    """Have no warning for decisions, which no list of the sidebar has."""
    environment: BuildEnvironment = app.env
    if RECORD.match(environment.docname):
        environment.metadata[environment.docname]["orphan"] = True


def mend_page(
    app: Sphinx,
    name: str,
    template: str,
    context: dict[str, object],
    document: object,
) -> None:
    """Have keyboards reach what scrolls, and the sidebar's headings have their level."""
    for part, changes in MENDED.items():
        text = context.get(part)
        for old, new in changes.items() if isinstance(text, str) else ():
            text = str(text).replace(old, new)
        context[part] = text


def setup(app: Sphinx) -> None:
    """Register what is above."""
    app.add_lexer("json", FrameLexer)
    app.connect("doctree-read", leave_out_of_sidebar)
    app.connect("html-page-context", mend_page, priority=AFTER_THE_THEME)
