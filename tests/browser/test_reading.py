"""Who reads the page: by a token, by keyboard, on a phone, by a screen reader, in the dark."""

import json
import os

import pytest

from inferd.bridge.identity.token import TokenRecord, make_token
from inferd.bridge.identity.token_file import changing_tokens
from tests.browser.browsing import PHONE, TRAPS, findings
from tests.daemon.bridge import bridge_to
from tests.daemon.harness import mock
from tests.media_files import png_file, wav_file

pytestmark = pytest.mark.short_version


def test_a_token_signs_in_and_a_wrong_one_says_what_to_do(
    new_reader, make_daemon, tmp_path
):
    table = {
        "backend": [mock(tokens=["hi"])],
        "bridge": {"own_user": False, "tokens": str(tmp_path / "tokens.json")},
    }
    guarded = make_daemon(table).start()
    with bridge_to(guarded) as bridge:
        token, token_id, digest = make_token(os.urandom(38))
        with changing_tokens(tmp_path / "tokens.json") as tokens:
            tokens.append(TokenRecord(id=token_id, name="ada", sha256=digest))
        reader = new_reader(bridge.address).open()
        field = reader.page.get_by_label("Token")
        field.fill("inferd-wrong")
        field.press("Enter")
        alert = reader.page.get_by_role("alert")
        alert.get_by_text("Sign in again with a token that is valid.").wait_for()
        assert findings(reader.page) == []
        field.fill(token)
        field.press("Enter")
        reader.choose("mock")
        reader.say("hello")
        assert "hi" in reader.answered().inner_text()
        reader.page.reload()
        reader.answered()
        reader.button("Sign out").click()
        field.wait_for()
        reader.page.reload()
        field.wait_for()
        assert token not in reader.page.evaluate(
            "() => JSON.stringify([{ ...localStorage }, { ...sessionStorage }])"
        )


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_axe_finds_nothing_serious(new_reader, scheme):
    reader = new_reader(color_scheme=scheme).open()
    page = reader.page
    page.get_by_label("Message", exact=True).wait_for()
    assert findings(page) == []
    reader.choose("rich")
    reader.say("Show all that there is")
    reader.answered()
    assert findings(page) == []
    reader.button("Settings").click()
    page.get_by_role("dialog").wait_for()
    assert findings(page) == []
    page.keyboard.press("Escape")
    page.get_by_role("link", name="Status", exact=True).click()
    page.get_by_text("The daemon answers.").wait_for()
    assert findings(page) == []


def test_light_and_dark_follow_the_device(new_reader):
    shades = []
    for scheme in ("light", "dark"):
        page = new_reader(color_scheme=scheme).open().page
        page.get_by_label("Message", exact=True).wait_for()
        shades.append(
            page.evaluate("() => getComputedStyle(document.body).backgroundColor")
        )
    assert shades[0] != shades[1]


def test_all_is_done_by_keyboard_alone(reader):
    page = reader.page
    page.get_by_label("Message", exact=True).wait_for()
    keys = page.keyboard
    reader.choose("slow")
    page.get_by_label("Message", exact=True).focus()
    keys.type("one")
    keys.press("Shift+Enter")
    keys.type("two")
    keys.press("Enter")
    reader.wait_text("word5 ")
    keys.press("Escape")
    reader.answered("cancelled")
    assert page.locator(".prompt-text").inner_text() == "one\ntwo"
    page.evaluate("document.activeElement.blur()")
    reached = set()
    wanted = {"New chat", "Edit", "Regenerate", "Copy", "Settings", "Status", "Attach"}
    for _ in range(300):  # each chat that is listed has three places
        keys.press("Tab")
        reached.add(page.evaluate("() => document.activeElement.textContent.trim()"))
        if wanted <= reached:
            break
    assert wanted <= reached
    page.get_by_role("button", name="Edit").press("Enter")
    page.get_by_text("Another version of a message.").wait_for()
    assert page.evaluate("() => document.activeElement.id") == "message"
    keys.press("Escape")
    keys.press("Alt+n")
    page.get_by_text("New chat").first.wait_for()
    keys.press("Control+k")
    assert page.evaluate("() => document.activeElement.id") == "search"


def test_a_phone_shows_one_thing_at_a_time(new_reader):
    reader = new_reader(**PHONE).open()
    page = reader.page
    reader.choose("rich")
    reader.say("On a phone")
    reader.answered()
    assert page.evaluate("() => document.documentElement.scrollWidth") <= 390
    assert not page.get_by_role("navigation").is_visible()
    reader.button("Chats").tap()
    page.get_by_role("navigation").get_by_role("link", name="On a phone").first.tap()
    page.get_by_role("navigation").wait_for(state="hidden")
    reader.button("Send").wait_for()
    box = reader.button("Send").bounding_box()
    assert box
    assert box["x"] + box["width"] <= 390
    assert box["y"] + box["height"] <= 780


def test_nothing_that_a_model_writes_runs_or_is_fetched(reader):
    reader.choose("hostile")
    for trap in ("<img src=x onerror=alert(1)>", "<script>alert(2)</script>"):
        n_before = reader.answers.count()
        reader.say(trap)
        reader.answers.nth(n_before).wait_for()
        reader.answered()
    answer = reader.answers.last
    shown = answer.inner_text()
    assert "<script>alert(1)</script>" in shown
    kinds = "script, img, iframe, svg, style, object, embed, a, form, input, math, base"
    assert reader.page.locator(f".message :is({kinds})").count() == 0
    for button in answer.locator("button.link").all():
        assert button.get_attribute("data-address").startswith("http")
    reader.page.reload()
    reader.answered()
    assert len(TRAPS) >= 30
    assert all("evil.example" not in each.url for each in reader.requests)


def test_a_link_shows_where_it_leads_before_it_opens(reader):
    reader.choose("rich")
    reader.say("Where are the documents?")
    link = reader.answered().get_by_role("button", name="documentation")
    assert "(example.org)" in link.inner_text()
    link.click()
    dialog = reader.page.get_by_role("dialog")
    assert "https://example.org/queue?from=answer" in dialog.inner_text()
    opens = dialog.get_by_role("link", name="Open in a new tab")
    assert opens.get_attribute("rel") == "noopener noreferrer nofollow"
    reader.page.keyboard.press("Escape")
    dialog.wait_for(state="detached")


def test_files_go_with_a_message(reader, tmp_path):
    reader.choose("rich")
    notes = tmp_path / "notes.txt"
    notes.write_text("The key is under the mat.\n```\n")
    page = reader.page
    page.locator("input[type=file]").set_input_files(notes)
    page.get_by_text("notes.txt").wait_for()
    page.evaluate(
        """() => {
            const data = new DataTransfer();
            data.items.add(new File(['a,b\\n1,2\\n'], 'table.csv', { type: 'text/csv' }));
            const target = document.querySelector('.page');
            target.dispatchEvent(new DragEvent('drop', { dataTransfer: data, bubbles: true }));
            const pasted = new DataTransfer();
            pasted.items.add(new File([new Uint8Array([0, 255])], 'x.bin'));
            document.getElementById('message').dispatchEvent(
                new ClipboardEvent('paste', { clipboardData: pasted, bubbles: true }));
        }"""
    )
    page.get_by_text("table.csv").wait_for()
    page.get_by_text("“x.bin” is neither a text nor").wait_for()
    reader.say("Read these")
    reader.answered()
    prompt = page.locator(".prompt-text").inner_text()
    assert "notes.txt:\n````\nThe key is under the mat." in prompt
    assert "table.csv:\n```\na,b\n1,2\n```" in prompt


def test_pictures_are_dropped_removed_sent_shown_and_saved_by_keyboard(
    reader, tmp_path
):
    page, picture, sound = reader.page, tmp_path / "é.png", tmp_path / "tone.wav"
    picture.write_bytes(png_file(64, 48))
    sound.write_bytes(wav_file())
    reader.choose("rich")
    page.locator("input[type=file]").set_input_files([picture, sound])
    chosen = page.get_by_role("list", name="Files of the message")
    chosen.get_by_text("tone.wav").wait_for()
    reader.button("Remove tone.wav").focus()
    page.keyboard.press("Enter")
    chosen.get_by_text("tone.wav").wait_for(state="detached")
    assert page.evaluate("document.activeElement.id") == "message"
    reader.say("What is it?")
    page.get_by_text("rich takes no pictures.").wait_for()
    reader.choose("eyes")
    page.get_by_label("Message", exact=True).press("Enter")
    assert reader.answered().inner_text().startswith("A cat.")
    assert chosen.count() == 0
    shown = page.get_by_role("img", name="é.png")
    page.wait_for_function("document.querySelector('.attachment img').naturalWidth > 0")
    assert shown.evaluate("image => image.naturalWidth") == 64
    with page.expect_download() as saved:
        page.get_by_role("link", name="Save").press("Enter")
    assert saved.value.path().read_bytes() == picture.read_bytes()
    assert saved.value.suggested_filename == "é.png"
    page.reload()
    shown.wait_for()
    reader.choose("eyes")
    reader.button("Edit").click()
    chosen.get_by_text("é.png").wait_for()
    reader.say("Look again")
    page.get_by_text("2/2").first.wait_for()
    shown.wait_for()
    assert not findings(page)


def test_the_status_says_what_the_machine_does(reader):
    reader.page.get_by_role("link", name="Status", exact=True).click()
    status = reader.page.get_by_role("region", name="Status")
    reader.page.get_by_text("The daemon answers.").wait_for()
    assert "Requests with the daemon" in status.inner_text()
    reader.page.wait_for_function(
        "() => document.querySelector('.plot polyline').points.length > 1"
    )
    assert "inferd bridge helper" in status.inner_text()


def test_a_daemon_that_is_gone_is_told_with_what_to_do(new_reader, make_daemon):
    gone = make_daemon({"backend": [mock(tokens=["hi"])]}).start()
    with bridge_to(gone) as bridge:
        reader = new_reader(bridge.address).open()
        reader.choose("mock")
        reader.say("hello")
        reader.answered()
        gone.stop()
        reader.say("are you there?")
        reader.answered("aborted_by_worker")
        assert reader.page.locator(".ending.failed").last.inner_text()
        reader.page.get_by_role("link", name="Status", exact=True).click()
        reader.page.get_by_text("The daemon does not answer.").wait_for()


def test_the_page_is_installable(reader):
    manifest = reader.page.evaluate(
        "async () => (await fetch(document.querySelector('link[rel=manifest]').href)).json()"
    )
    sizes = {icon["sizes"] for icon in manifest["icons"]}
    assert {"192x192", "512x512"} <= sizes
    assert json.dumps(manifest["start_url"]) == '"/"'
