import gzip

from inferd.bridge.page.files import HEADERS, read_files
from tests.unit.bridge.http.test_app import Browser, ScriptedDaemon

NAVIGATES = {"accept": "text/html,*/*;q=0.8", "sec-fetch-mode": "navigate"}


async def test_a_browser_gets_the_page_and_others_a_word(tmp_path):
    browser = Browser(tmp_path, ScriptedDaemon())
    page = await browser.send("GET", "/", headers=NAVIGATES, uid=-1)
    assert (page.status, page.headers["content-type"]) == (
        200,
        "text/html; charset=utf-8",
    )
    assert page.body == read_files()["index.html"].data
    word = await browser.send("GET", "/")
    assert word.body == b"inferd is running"
    assert "accept" in word.headers["vary"]


async def test_every_file_is_sent_with_the_rules_for_it(tmp_path):
    browser = Browser(tmp_path, ScriptedDaemon())
    for name, file in read_files().items():
        answer = await browser.send("GET", f"/page/{name}", uid=-1)
        assert (answer.status, answer.body) == (200, file.data)
        assert HEADERS.items() <= answer.headers.items()
        assert answer.headers["x-content-type-options"] == "nosniff"


async def test_a_file_is_compressed_and_not_sent_again(tmp_path):
    browser = Browser(tmp_path, ScriptedDaemon())
    path, file = "/page/main.js", read_files()["main.js"]
    packed = await browser.send("GET", path, headers={"accept-encoding": "gzip, br"})
    assert packed.headers["content-encoding"] == "gzip"
    assert gzip.decompress(packed.body) == file.data
    known = {"if-none-match": packed.headers["etag"]}
    again = await browser.send("GET", path, headers=known)
    assert (again.status, again.body) == (304, b"")
    assert "content-security-policy" in again.headers


async def test_nothing_but_the_pages_files_is_sent(tmp_path):
    browser = Browser(tmp_path, ScriptedDaemon())
    for path in (
        "../files.py",
        "vendor/preact.LICENSE",
        "vendor/vendored.json",
        "",
        ".",
    ):
        answer = await browser.send("GET", f"/page/{path}")
        assert answer.status == 404, path


async def test_a_link_of_another_page_leads_to_the_page_alone(tmp_path):
    browser = Browser(tmp_path, ScriptedDaemon())
    headers = {**NAVIGATES, "sec-fetch-site": "cross-site"}
    assert (await browser.send("GET", "/", headers=headers)).status == 200
    assert (await browser.send("GET", "/server_info", headers=headers)).status == 403


async def test_the_page_asks_as_a_user_of_the_bridge(tmp_path):
    browser = Browser(tmp_path, ScriptedDaemon())
    own = {
        "host": "localhost",
        "origin": "http://localhost",
        "sec-fetch-site": "same-origin",
    }
    assert (await browser.send("GET", "/server_info", headers=own)).status == 200
    assert (await browser.send("GET", "/server_info", headers=own, uid=1)).status == 401
