"""The site is built without a warning, its links lead somewhere, and browsers show it alone."""

import shutil
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from html.parser import HTMLParser
from pathlib import Path
from typing import Any, Final
from urllib.parse import unquote, urlsplit

import pytest
from playwright.sync_api import Browser, Page

from tests.browser.browsing import PHONE, chromium, findings
from tests.documents.pages import PAGES, ROOT

pytestmark = [pytest.mark.slow, pytest.mark.short_version]

BUILD: Final = ("-m", "sphinx", "-W", "--keep-going", "-q", "-b", "html")
BUILD_S: Final = 600.0
KINDS: Final = (
    *("docs/index", "README", "docs/first-ten-minutes", "docs/configuration"),
    *("docs/page", "docs/python-reference", "protocol/README", "search"),
    *("adr/README", "adr/0004-one-bounded-queue-that-refuses-at-once"),
)
"""A page of each kind: short and long, with tables, code, pictures, classes."""
LOOKS: Final[dict[str, dict[str, Any]]] = {
    "desk": {},
    "dark": {"color_scheme": "dark"},
    "phone": PHONE,
}
LOADED: Final = {("link", "href"), ("script", "src"), ("img", "src"), ("iframe", "src")}
"""Attributes whose address a browser fetches by itself."""


def build(source: Path, target: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *BUILD, "-c", "tools/site", ".", str(target)],
        cwd=source,
        capture_output=True,
        text=True,
        timeout=BUILD_S,
        check=False,
    )


@pytest.fixture(scope="module")
def site(tmp_path_factory) -> Path:
    target = tmp_path_factory.mktemp("site")
    done = build(ROOT, target)
    assert (done.returncode, done.stderr) == (0, "")
    return Path(target)


class Markup(HTMLParser):
    """What a page refers to, and what can be referred to in it."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.names: set[str] = set()
        self.links: list[str] = []
        self.loaded: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        for key, value in attrs:
            if key == "id" and value:
                self.names.add(value)
            elif (tag, key) in LOADED and value:
                self.loaded.append(value)
            elif key == "href" and value:
                self.links.append(value)


@cache
def markup(path: Path) -> Markup:
    return Markup(path.read_text())


def leads_nowhere(page: Path, address: str) -> bool:
    """Tell whether a link within the site misses a file, or a name in it."""
    parts = urlsplit(address)
    if parts.scheme or parts.netloc:
        return False
    target = page.parent / unquote(parts.path) if parts.path else page
    if not target.is_file():
        return True
    in_page = target.suffix == ".html" and parts.fragment
    return bool(in_page) and unquote(parts.fragment) not in markup(target).names


def test_each_document_is_a_page_and_each_of_docs_is_in_the_sidebar(site):
    index = (site / "docs" / "index.html").read_text()
    for page in PAGES:
        assert (site / page).with_suffix(".html").is_file(), page
        name = Path(page).stem
        if page.startswith("docs/") and name != "index":
            assert f'href="{name}.html"' in index, f"docs/index.md does not list {page}"


def test_each_link_and_anchor_leads_somewhere(site):
    pages = sorted(site.rglob("*.html"))
    assert len(pages) > len(PAGES)
    wrong = [
        (page.relative_to(site).as_posix(), address)
        for page in pages
        for address in (*markup(page).links, *markup(page).loaded)
        if leads_nowhere(page, address)
    ]
    assert wrong == []


def test_nothing_is_fetched_from_another_host(site):
    for page in site.rglob("*.html"):
        assert [each for each in markup(page).loaded if "//" in each] == []
    for sheet in site.rglob("*.css"):
        assert "url(http" not in sheet.read_text()
        assert "@import" not in sheet.read_text()


def test_a_link_to_a_heading_that_is_not_there_ends_the_build(tmp_path):
    (tmp_path / "tools").mkdir()
    shutil.copytree(ROOT / "tools" / "site", tmp_path / "tools" / "site")
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs" / "index.md").write_text("# A\n\n[b](#c) [d](e.md)\n")
    done = build(tmp_path, tmp_path / "out")
    assert done.returncode == 1
    for missing in ("c", "e.md"):
        assert f"target not found: '{missing}'" in done.stderr


# --- in a browser, opened as files ------------------------------------------------------


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with chromium() as started:
        yield started


class Visit:
    """A reader of the site, without a network.

    Args:
        browser: where it is opened.
        site: the folder of the site.
        options: of the browser's context.
    """

    def __init__(self, browser: Browser, site: Path, **options: Any) -> None:
        context = browser.new_context(**options)
        self.site = site
        self.faults: list[str] = []
        self.page: Page = context.new_page()
        self.page.on("pageerror", lambda error: self.faults.append(str(error)))
        self.page.on("request", lambda request: self._note(request.url))

    def _note(self, address: str) -> None:
        if not address.startswith((self.site.as_uri(), "data:")):
            self.faults.append(f"another address: {address}")

    def open(self, name: str) -> Page:
        """Open a page by its name."""
        self.page.goto(f"{self.site.as_uri()}/{name}.html")
        return self.page


@pytest.mark.parametrize("look", LOOKS)
def test_axe_finds_nothing_serious_and_no_page_is_wider_than_the_screen(
    browser, site, look
):
    visit = Visit(browser, site, **LOOKS[look])
    for name in KINDS:
        page = visit.open(name)
        assert findings(page) == [], name
        width = page.evaluate("document.documentElement.scrollWidth - innerWidth")
        assert width <= 0, name
    assert visit.faults == []


def test_the_search_finds_words_without_a_server(browser, site):
    visit = Visit(browser, site)
    page = visit.open("docs/index")
    page.get_by_role("textbox", name="Search").fill("gateway_weight")
    page.keyboard.press("Enter")
    found = page.locator("#search-results a", has_text="Configuration").first
    found.click()
    page.wait_for_url("**/docs/configuration.html**")
    assert visit.faults == []


def test_a_keyboard_reaches_the_text_and_turns_the_light_off(browser, site):
    page = Visit(browser, site).open("docs/first-ten-minutes")
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.textContent").strip() == (
        "Skip to content"
    )
    page.keyboard.press("Enter")
    assert page.url.endswith("#furo-main-content")
    button = page.get_by_role("button", name="Toggle Light / Dark / Auto").first
    button.focus()
    page.keyboard.press("Enter")
    assert page.evaluate("document.body.dataset.theme") in {"light", "dark"}


def test_a_phone_has_the_list_of_pages_behind_a_button(browser, site):
    page = Visit(browser, site, **PHONE).open("docs/first-ten-minutes")
    link = page.get_by_role("link", name="When something is wrong").first
    drawer = page.locator(".sidebar-drawer")
    assert drawer.evaluate("it => it.getBoundingClientRect().right") <= 0
    page.locator("label.nav-overlay-icon").click()
    link.click()
    page.wait_for_url("**/docs/troubleshooting.html")


def test_a_print_has_the_text_alone(browser, site):
    page = Visit(browser, site).open("docs/first-ten-minutes")
    page.emulate_media(media="print")
    assert not page.locator(".sidebar-drawer").is_visible()
    assert page.locator("article h1").is_visible()


def test_the_top_of_the_site_leads_to_the_first_page(browser, site):
    page = Visit(browser, site).open("index")
    page.wait_for_url("**/docs/index.html")
