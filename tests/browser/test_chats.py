"""What people do with chats in the page."""

import re

import pytest
from playwright.sync_api import expect

from tests.browser.browsing import Cable

pytestmark = pytest.mark.short_version


def test_a_question_is_answered_and_the_chat_kept(reader):
    reader.choose("rich")
    reader.say("How is the queue shared?")
    answer = reader.answered()
    assert answer.locator("table td").first.inner_text() == "anna"
    assert "client.stream" in answer.locator("pre code").inner_text()
    assert reader.page.title() == "How is the queue shared? · inferd"
    assert "tokens" in answer.locator(".facts").inner_text()
    reader.page.reload()
    assert reader.answered().locator("ol li").count() == 3
    listed = reader.page.get_by_role("navigation").get_by_role("link")
    assert "How is the queue shared?" in listed.all_inner_texts()


def test_a_message_before_the_models_are_listed_is_sent_once_they_are(reader):
    held = []

    def hold(route):
        held.append(route)

    reader.page.route("**/configs/model_configs", hold)
    reader.page.reload()
    reader.say("too early")
    reader.page.get_by_text("It is sent once the models are listed.").wait_for()
    for route in held:
        route.continue_()
    reader.answered()
    assert reader.page.locator(".prompt-text").inner_text() == "too early"


def test_the_next_message_needs_no_more_than_the_end_of_the_answer(reader):
    reader.choose("rich")
    reader.say("first")
    reader.answered()
    held = []

    def hold(route):
        held.append(route)

    reader.page.route(re.compile("/chats/[0-9a-f]{32}$"), hold)
    prompts = reader.page.locator(".prompt-text")
    for n_before, text in enumerate(("second", "third"), 1):
        reader.say(text)
        prompts.get_by_text(text, exact=True).wait_for()
        reader.answers.nth(n_before).wait_for()
        reader.answered()
    assert held
    for route in held:
        route.continue_()


def test_a_finished_block_is_drawn_once(reader):
    reader.choose("slow")
    reader.say("count")
    reader.wait_text("word5 ")
    reader.button("Stop").click()
    reader.answered("cancelled")
    reader.choose("rich")
    reader.page.evaluate(
        """() => {
            window.drawn = [];
            new MutationObserver(changes => {
              for (const { removedNodes } of changes)
                for (const node of removedNodes)
                  if (node.matches?.('h3, ol, table, figure, blockquote')) window.drawn.push(node.tagName);
            }).observe(document.body, { childList: true, subtree: true });
        }"""
    )
    reader.button("Regenerate").click()
    reader.wait_text("links ask before they open")
    reader.answered()
    assert reader.page.evaluate("() => window.drawn.filter(tag => tag === 'H3')") == []


def test_an_answer_goes_on_where_it_was_after_a_reload(reader):
    reader.choose("slow")
    reader.say("count")
    reader.wait_text("word20 ")
    reader.page.reload()
    reader.wait_text("word60 ")
    reader.button("Stop").click()
    words = reader.answered("cancelled").locator(".answer-text").inner_text().split()
    assert words == [f"word{number}" for number in range(1, len(words) + 1)]
    events = [each for each in reader.requests if each.url.endswith("/events")]
    assert events[-1].headers.get("last-event-id")


def test_an_answer_goes_on_after_the_network_was_cut(new_reader, bridge):
    cable = Cable(bridge.port)
    reader = new_reader(f"http://127.0.0.1:{cable.port}").open()
    reader.choose("slow")
    reader.say("count")
    reader.wait_text("word20 ")
    cable.cut()
    reader.wait_text("The connection was lost.")
    cable.mend()
    reader.wait_text("Writing")
    reader.wait_text("word90 ")
    reader.button("Stop").click()
    words = reader.answered("cancelled").locator(".answer-text").inner_text().split()
    assert words == [f"word{number}" for number in range(1, len(words) + 1)]
    events = [each for each in reader.requests if each.url.endswith("/events")]
    assert events[-1].headers.get("last-event-id")
    cable.close()


def test_two_tabs_show_the_same_chat(reader):
    reader.choose("slow")
    reader.say("count")
    reader.wait_text("word10 ")
    other = reader.new_tab()
    other.goto(reader.page.url)
    other.get_by_text("word30 ").wait_for()
    other.get_by_role("button", name="Stop").click()
    first = reader.answered("cancelled").locator(".answer-text").inner_text()
    shown = other.locator('[data-state="cancelled"] .answer-text')
    shown.wait_for()
    assert shown.inner_text() == first
    reader.choose("rich")
    reader.say("And the queue?")
    reader.answered()
    other.locator(".answer table").wait_for()


def test_another_device_reads_an_answer_as_it_is_written(reader, new_reader):
    reader.choose("slow")
    reader.say("count")
    reader.wait_text("word5 ")
    other = new_reader()
    other.page.goto(reader.page.url)
    other.wait_text("word20 ")
    reader.button("Stop").click()
    other.answered("cancelled")


def test_the_page_may_be_closed_while_an_answer_is_written(reader, new_reader):
    reader.choose("rich")
    reader.say("Say more about queues")
    reader.answers.first.wait_for()
    address = reader.page.url
    reader.context.close()
    other = new_reader()
    other.page.goto(address)
    assert other.answered().locator("table").count() == 1


def test_a_message_that_is_edited_begins_a_branch(reader):
    reader.choose("rich")
    reader.say("first wording")
    reader.answered()
    reader.button("Edit").click()
    field = reader.page.get_by_label("Message", exact=True)
    assert field.input_value() == "first wording"
    reader.say("second wording")
    reader.page.get_by_text("2/2").first.wait_for()
    reader.answered()
    prompts = reader.page.locator(".prompt-text")
    assert prompts.all_inner_texts() == ["second wording"]
    reader.button("Previous version").first.click()
    reader.page.get_by_text("first wording", exact=True).and_(prompts).wait_for()
    with reader.page.expect_response(lambda response: response.request.method == "GET"):
        reader.page.reload()
    prompts.first.wait_for()
    assert prompts.all_inner_texts() == ["first wording"]


def test_what_a_person_types_is_lost_neither_by_sending_nor_by_an_edit(reader):
    field = reader.page.get_by_label("Message", exact=True)
    held = []

    def hold(route):
        held.append(route)

    asked = re.compile("/prompter_message$")
    reader.choose("rich")
    reader.say("first")
    reader.answered()
    reader.page.route(asked, hold)
    reader.say("second")
    field.press_sequentially("third")  # while the second is sent
    assert field.input_value() == "third"
    held.pop().continue_()
    reader.answers.nth(1).wait_for()
    reader.answered()
    assert field.input_value() == "third"
    reader.button("Edit").first.click()
    expect(field).to_have_value("first")
    field.fill("another first")
    reader.button("Keep the old one").click()
    expect(field).to_have_value("third")
    field.press("Enter")
    field.press_sequentially("fourth")
    held.pop().fulfill(status=429, body="{}")
    expect(field).to_have_value("third\nfourth")


def test_an_answer_that_is_regenerated_has_versions(reader):
    reader.choose("rich")
    reader.say("again")
    reader.answered()
    reader.button("Regenerate").click()
    reader.page.get_by_text("2/2").wait_for()
    reader.answered()
    reader.button("Previous version").click()
    reader.page.get_by_text("1/2").wait_for()
    assert reader.answers.count() == 1


def test_a_search_finds_a_message_and_opens_it(reader):
    reader.choose("rich")
    reader.say("the zebra crosses")
    reader.answered()
    reader.page.get_by_role("link", name="New chat").click()
    reader.page.keyboard.press("Control+k")
    reader.page.keyboard.type("zebra")
    hit = reader.page.locator(".found a").filter(has_text="zebra").first
    hit.click()
    reader.page.get_by_text("the zebra crosses").and_(
        reader.page.locator(".prompt-text")
    ).wait_for()
    reader.page.get_by_label("Search chats").fill("nobodyeversaidthis")
    reader.page.get_by_text("No message has all of these words.").wait_for()


def test_a_chat_is_renamed_and_deleted(reader):
    reader.choose("rich")
    reader.say("to be deleted")
    reader.answered()
    reader.button("Rename").click()
    name = reader.page.get_by_role("dialog").get_by_label("Name")
    name.fill("Kept for a while")
    name.press("Enter")
    chats = reader.page.locator(".chats")
    chats.get_by_role("link", name="Kept for a while").wait_for()
    reader.button("Delete").click()
    reader.page.get_by_role("dialog").get_by_role("button", name="Delete").click()
    chats.get_by_role("link", name="Kept for a while").wait_for(state="detached")
    reader.page.go_back()
    reader.page.get_by_text("This chat is not here.").wait_for()


def test_settings_and_the_model_are_kept_with_the_chat(reader):
    reader.choose("rich")
    reader.say("settings")
    reader.answered()
    reader.button("Settings").click()
    reader.page.get_by_label("Instructions for the model").fill("Be brief.")
    reader.page.get_by_label("When the context is full").select_option("refuse")
    reader.page.get_by_label("Temperature").fill("0.2")
    reader.button("Keep").click()
    reader.page.get_by_role("dialog").wait_for(state="detached")
    reader.page.reload()
    reader.answered()
    assert reader.page.get_by_label("Model", exact=True).input_value() == "rich"
    reader.button("Settings").click()
    prompt = reader.page.get_by_label("Instructions for the model")
    assert prompt.input_value() == "Be brief."
    assert (
        reader.page.get_by_label("When the context is full").input_value() == "refuse"
    )
    assert reader.page.get_by_label("Temperature").input_value() == "0.2"


def test_a_place_in_the_queue_is_told_while_a_message_waits(reader, new_reader):
    others = [new_reader().open() for _ in range(2)]
    for other in others:
        other.choose("slow")
        other.say("count")
        other.wait_text("word2 ")
    reader.choose("slow")
    reader.say("me too")
    reader.wait_text("In the queue: place 1")
    others[0].button("Stop").click()
    reader.wait_text("word2 ")
    reader.button("Stop").click()
    others[1].button("Stop").click()
    others[1].answered("cancelled")


def test_long_chats_show_the_newest_and_more_when_asked(reader, bridge):
    reader.choose("rich")
    reader.say("begin")
    reader.answered()
    n_more = 30
    reader.page.evaluate(
        """async n => {
            const id = location.hash.split('/')[2];
            const ask = (route, body) => fetch(`/chats/${id}/${route}`, { method: 'POST',
                headers: { 'content-type': 'application/json' }, body: JSON.stringify(body) }).then(r => r.json());
            let parent = (await (await fetch(`/chats/${id}`)).json()).messages.at(-1).id;
            for (let at = 0; at < n; at += 1) {
                const made = await ask('messages', { parent_id: parent, content: `turn ${at}`, model_config_name: 'rich' });
                parent = made.message_id;
                let state = '';
                while (state !== 'complete') state = (await (await fetch(`/chats/${id}/messages/${parent}`)).json()).state;
            }
        }""",
        n_more,
    )
    reader.page.reload()
    reader.answered()
    messages = reader.page.locator(".message")
    assert messages.count() <= n_more
    n_before = messages.count()
    more = reader.page.get_by_role("button", name="Show older messages")
    more.focus()
    reader.page.keyboard.press("Enter")
    reader.page.wait_for_function(
        "n => document.querySelectorAll('.message').length > n", arg=n_before
    )
    assert messages.count() <= 2 + 2 * n_more
