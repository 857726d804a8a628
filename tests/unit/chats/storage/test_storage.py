"""The database: one for all tests but those that break it, each with owners of its own."""

import hashlib
import sqlite3
from contextlib import closing
from functools import partial
from itertools import count
from pathlib import Path

import pytest
from msgspec.structs import replace
from sqlalchemy import event, select
from sqlalchemy.dialects import postgresql

from inferd.chats.failures import ChatError, ChatFault
from inferd.chats.records import KeptAttachment, KeptChat, KeptMessage, OwnSettings
from inferd.chats.storage import chats, messages, runners, schema
from inferd.chats.storage.attachments import read_attachment, read_files
from inferd.chats.storage.backup import back_up, restore
from inferd.chats.storage.database import ChatDatabase, place_of_database
from inferd.chats.storage.erasure import erase_words
from inferd.chats.storage.imports import add_imported
from inferd.chats.storage.runner_file import held_name
from inferd.chats.storage.search import search
from inferd.chats.storage.tables import CHATS
from inferd.chats.store import ChatStore
from tests.cases import each_case

LIMITS = messages.MessageLimits(
    n_messages=6, n_chars=1000, n_pending=2, n_attached_bytes=20
)
NUMBERS = count(1)


@pytest.fixture(scope="module")
def template(tmp_path_factory):
    """Make a database with the schema, of which those that are broken are copies."""
    place = place_of_database(None, tmp_path_factory.mktemp("chats"))
    database = ChatDatabase(place)
    yield database
    database.close()


@pytest.fixture
def owner():
    return f"owner {next(NUMBERS)}"


def new_id():
    return f"{next(NUMBERS):032x}"


def new_chat(connection, owner, n_most=100, **fields):
    moment = next(NUMBERS)
    chat = KeptChat(
        id=new_id(), owner=owner, created_us=moment, modified_us=moment, **fields
    )
    return chats.create_chat(connection, chat, n_most)


def chat_of(database, owner, n_most=100, **fields):
    return database.run(lambda each: new_chat(each, owner, n_most, **fields))


def prompt(chat, parent=None, text="hello", **fields):
    return KeptMessage(
        **{
            "id": new_id(),
            "chat_id": chat.id,
            "parent_id": parent and parent.id,
            "role": "prompter",
            "state": "manual",
            "created_us": next(NUMBERS),
            "text": text,
            **fields,
        }
    )


def answer(chat, parent, **fields):
    fields = {"role": "assistant", "state": "pending", "text": "", **fields}
    return prompt(chat, parent, **fields)


def add(database, owner, message, runner=None, limits=LIMITS):
    return database.run(
        lambda each: messages.add_message(each, owner, message, limits, runner)
    )


def attached(name="a.png", data=b"pixels"):
    digest = hashlib.sha256(data).hexdigest()
    kept = KeptAttachment(
        id=new_id(),
        name=name,
        media_type="image/png",
        n_bytes=len(data),
        digest=digest,
    )
    return kept, {kept.id: data}


def add_file(database, owner, chat, **fields):
    kept, files = attached(**fields)
    message = prompt(chat, text="", attachments=(kept,))
    return database.run(
        lambda each: messages.add_message(each, owner, message, LIMITS, files=files)
    )


def all_of(database, owner, chat):
    return database.run(lambda each: messages.read_messages(each, owner, chat.id))


def refusal(act, *arguments):
    with pytest.raises(ChatError) as caught:
        act(*arguments)
    return caught.value


def test_messages_are_read_as_they_were_stored_by_their_owner_alone(template, owner):
    chat = chat_of(template, owner, settings=OwnSettings(context="refuse"))
    first = add(template, owner, prompt(chat, text="a title"))
    second = add(template, owner, answer(chat, first), "r")
    assert all_of(template, owner, chat) == [first, second]
    read = template.run(lambda each: chats.read_chat(each, owner, chat.id))
    assert (read.title, read.tail_id) == ("a title", second.id)
    assert read.settings == OwnSettings(context="refuse")
    for act in (
        lambda each: chats.read_chat(each, "other", chat.id),
        lambda each: messages.read_messages(each, "other", chat.id),
        lambda each: messages.read_message(each, "other", chat.id, first.id),
        lambda each: messages.stop_message(each, "other", chat.id, second.id),
        lambda each: chats.change_chat(each, "other", chat.id, {}, 0),
        lambda each: chats.delete_chat(each, "other", chat.id),
        lambda each: messages.add_message(each, "other", prompt(chat), LIMITS),
    ):
        assert refusal(template.run, act).fault is ChatFault.NO_CHAT
    assert template.run(lambda each: search(each, "other", "title", 5)) == []


def test_the_same_request_is_stored_once_and_another_with_its_id_refused(
    template, owner
):
    chat = chat_of(template, owner)
    first = prompt(chat)
    assert add(template, owner, first) is first
    again = replace(first, created_us=next(NUMBERS))
    assert add(template, owner, again) == first
    other = replace(first, text="other")
    assert refusal(add, template, owner, other).fault is ChatFault.CONFLICT
    assert all_of(template, owner, chat) == [first]


def test_an_owner_stores_no_more_than_the_bounds(template, owner):
    chat = chat_of(template, owner, n_most=1)
    assert refusal(chat_of, template, owner, 1).param == "chats"
    too_long = prompt(chat, text="x" * (LIMITS.n_chars + 1))
    assert refusal(add, template, owner, too_long).param == "content"
    first = add(template, owner, prompt(chat))
    for _ in range(LIMITS.n_pending):
        add(template, owner, answer(chat, first), "r")
    assert refusal(add, template, owner, answer(chat, first)).param == "pending"
    for _ in range(LIMITS.n_messages - 1 - LIMITS.n_pending):
        add(template, owner, prompt(chat))
    full = refusal(add, template, owner, prompt(chat))
    assert (full.fault, full.param) == (ChatFault.LIMIT, "messages")


def test_files_are_stored_with_their_message_once_within_the_bound_of_their_owner(
    template, owner
):
    chat = chat_of(template, owner)
    first = add_file(template, owner, chat, data=b"pixels of a cat")
    [kept] = first.attachments
    assert all_of(template, owner, chat) == [first]
    found = template.run(lambda each: chats.read_chat(each, owner, chat.id))
    assert found.title == "a.png"

    def read(who, name=kept.id):
        return template.run(lambda each: read_attachment(each, who, chat.id, name))

    assert read(owner) == (kept, b"pixels of a cat")
    assert refusal(read, owner, "0" * 32).fault is ChatFault.NO_ATTACHMENT
    assert refusal(read, "other").fault is ChatFault.NO_CHAT
    again, files = attached(data=b"pixels of a cat")
    repeated = replace(first, attachments=(again,))
    assert (
        template.run(
            lambda each: messages.add_message(
                each, owner, repeated, LIMITS, files=files
            )
        )
        == first
    )
    other, _ = attached(data=b"pixels of a dog")
    conflict = replace(first, attachments=(other,))
    assert refusal(add, template, owner, conflict).fault is ChatFault.CONFLICT
    elsewhere = chat_of(template, owner)
    full = refusal(lambda: add_file(template, owner, elsewhere))
    assert (full.fault, full.param) == (ChatFault.LIMIT, "attachments")
    assert all_of(template, owner, elsewhere) == []
    found = template.run(lambda each: read_files(each, owner, chat.id, [kept.id, "x"]))
    assert found == {kept.id: b"pixels of a cat"}


def import_of(owner, n_turns, **fields):
    moment = next(NUMBERS)
    chat = KeptChat(id=new_id(), owner=owner, created_us=moment, modified_us=moment)
    kept, files = attached()
    told: list[KeptMessage] = []
    for place in range(n_turns):
        make = answer if place % 2 else prompt
        text = "" if place == 0 else f"turn{place}"
        named = {"state": "complete", "thinking": "hm"} if place % 2 else {}
        names = (kept,) if place == 0 else ()
        told.append(
            make(
                chat, told[-1] if told else None, text=text, attachments=names, **named
            )
        )
    return chat, told, files


def test_an_import_is_stored_at_once_as_its_messages_would_be_one_by_one(
    template, owner
):
    def store(imported, n_most=100, limits=LIMITS):
        chat, told, files = imported
        selects: list[str] = []

        def act(connection):
            raw = connection.connection.driver_connection
            raw.set_trace_callback(selects.append)
            try:
                return add_imported(connection, chat, told, n_most, limits, files=files)
            finally:
                raw.set_trace_callback(None)

        found = template.run(act)
        return found, sum(each.startswith("SELECT") for each in selects)

    much = replace(LIMITS, n_messages=100)
    short, long = import_of(owner, 2), import_of(owner, 60)
    _, n_few = store(short)
    found, n_many = store(long, limits=much)
    assert n_few == n_many
    chat, told, _ = long
    assert all_of(template, owner, chat) == told
    assert (found.title, found.tail_id) == ("a.png", told[-1].id)
    hits = template.run(lambda each: search(each, owner, "turn59", 5))
    assert [hit.message_id for hit in hits] == [told[-1].id]
    n_chars = sum(
        len(each.text + each.thinking)
        for imported in (short, long)
        for each in imported[1]
    )
    n_bytes = 3 * 6
    full = replace(much, n_chars=n_chars + 7, n_attached_bytes=n_bytes)
    store(import_of(owner, 2), limits=full)
    for limits, n_most, param in (
        (full, 100, "content"),
        (replace(much, n_attached_bytes=n_bytes), 100, "attachments"),
        (replace(much, n_messages=1), 100, "messages"),
        (much, 3, "chats"),
    ):
        refused = import_of(owner, 2)
        assert refusal(store, refused, n_most, limits).param == param
        assert refusal(all_of, template, owner, refused[0]).fault is ChatFault.NO_CHAT
    chat, [first, second], files = import_of(owner, 2)
    told = [first, replace(second, role="prompter")]
    assert refusal(store, (chat, told, files), 100, much).param == "parent_id"


def test_an_answer_is_written_until_somebody_ends_it(template, owner):
    chat = chat_of(template, owner)
    first = add(template, owner, prompt(chat))
    waiting, running = (
        add(template, owner, answer(chat, first), "r1") for _ in range(2)
    )

    def write(message, runner="r1", **fields):
        changed = replace(message, state="in_progress", **fields)
        return template.run(lambda each: messages.write_answer(each, changed, runner))

    assert write(running, text="pelican")
    assert not write(running, "r2", text="stolen")
    cancelled = template.run(
        lambda each: messages.cancel_others(each, chat.id, running.id)
    )
    assert cancelled == [waiting.id]
    assert not write(waiting, text="late")
    stopped = template.run(
        lambda each: messages.stop_message(each, owner, chat.id, running.id)
    )
    assert (stopped.state, stopped.text) == ("cancelled", "pelican")
    assert not write(running, text="later")
    assert all_of(template, owner, chat)[2] == stopped


def finish(database, message, runner="r1"):
    return database.run(lambda each: messages.finish_answer(each, message, runner))


def n_chars(database, chat):
    row = select(CHATS.c.n_chars).where(CHATS.c.id == chat.id)
    return database.run(lambda each: each.execute(row).scalar_one())


def test_an_answer_whose_stop_meets_its_end_has_one_state_and_all_of_its_text(
    template, owner
):
    chat = chat_of(template, owner)
    first = add(template, owner, prompt(chat))
    met, ended = (add(template, owner, answer(chat, first), "r1") for _ in range(2))
    stop = partial(messages.stop_message, owner=owner, chat_id=chat.id)
    template.run(partial(stop, message_id=met.id))
    stored = finish(template, replace(met, state="complete", text="pelican"))
    assert (stored.state, stored.text) == ("cancelled", "pelican")
    assert all_of(template, owner, chat)[1] == stored
    complete = replace(ended, state="complete", text="heron")
    assert finish(template, complete) == complete
    assert template.run(partial(stop, message_id=ended.id)) == complete
    hits = template.run(lambda each: search(each, owner, "pelican", 5))
    assert [hit.message_id for hit in hits] == [met.id]
    template.run(lambda each: chats.delete_chat(each, owner, chat.id))
    assert finish(template, complete) is None


def test_the_text_and_the_reasoning_of_an_answer_count_once_each(template, owner):
    chat = chat_of(template, owner)
    first = add(template, owner, prompt(chat, text="123"))
    assert n_chars(template, chat) == 3
    written = replace(
        add(template, owner, answer(chat, first), "r1"), text="12", thinking="1234"
    )
    running = replace(written, state="in_progress")
    template.run(lambda each: messages.write_answer(each, running, "r1"))
    assert n_chars(template, chat) == 3  # until it has ended
    for _ in range(2):
        template.run(lambda each: messages.stop_message(each, owner, chat.id, first.id))
        template.run(
            lambda each: messages.stop_message(each, owner, chat.id, written.id)
        )
        assert n_chars(template, chat) == 9
    finish(template, replace(written, state="complete", text="1234567"))
    assert n_chars(template, chat) == 14
    left = replace(LIMITS, n_chars=14)
    thought = answer(chat, first, state="complete", thinking="1")
    assert refusal(add, template, owner, thought, None, left).param == "content"


@each_case(
    "act",
    [
        lambda each, message, _: messages.write_answer(each, message, "locking"),
        lambda each, message, _: messages.finish_answer(each, message, "locking"),
        lambda each, message, owner: messages.stop_message(
            each, owner, message.chat_id, message.id
        ),
        lambda each, *_: messages.end_unfinished(each, ["locking"]),
    ],
    ids=["write", "finish", "stop", "end"],
)
def test_who_changes_an_answer_locks_its_chat_before(template, owner, act):
    chat = chat_of(template, owner)
    first = add(template, owner, prompt(chat))
    message = add(template, owner, answer(chat, first), "locking", MANY)
    told: list[str] = []

    def act_heard(connection):
        hear = partial(each_statement, told)
        event.listen(connection, "before_execute", hear)
        act(connection, message, owner)

    template.run(act_heard)
    [changed] = [at for at, said in enumerate(told) if said.startswith("UPDATE mess")]
    [locked] = [at for at, said in enumerate(told) if said.endswith("FOR UPDATE")]
    assert locked < changed
    assert "FROM chats" in told[locked]


def each_statement(told, _, statement, *__):
    told.append(str(statement.compile(dialect=postgresql.dialect())))


def test_what_a_dead_bridge_left_is_aborted_with_its_text(template, owner):
    chat = chat_of(template, owner)
    first = add(template, owner, prompt(chat))
    names = ("restarted", "alive", "dead")
    left = [add(template, owner, answer(chat, first), name, MANY) for name in names]
    for name, message in zip(names, left, strict=True):
        partial = replace(message, text=f"said {name}", state="in_progress")
        template.run(lambda each: messages.write_answer(each, partial, name))  # noqa: B023
    template.run(lambda each: runners.keep_running(each, "dead", 50))
    template.run(lambda each: runners.keep_running(each, "alive", 150))
    ended = template.run(lambda each: runners.begin_running(each, "restarted", 200))
    assert ended == [left[0].id]
    dead = template.run(lambda each: runners.end_dead(each, 100))
    assert {left[2].id} == {each.id for each in left} & {*dead}
    states = [each.state for each in all_of(template, owner, chat)[1:]]
    assert states == ["aborted_by_worker", "in_progress", "aborted_by_worker"]
    hits = template.run(lambda each: search(each, owner, "said", 5))
    assert [hit.text for hit in hits] == ["said dead", "said restarted"]
    template.run(lambda each: runners.end_running(each, "alive"))
    assert all_of(template, owner, chat)[2].state == "aborted_by_worker"


MANY = replace(LIMITS, n_pending=10)


def test_a_list_is_read_in_pages_in_both_directions(template, owner):
    made = [chat_of(template, owner) for _ in range(5)][::-1]
    hidden = made.pop(1)
    template.run(
        lambda each: chats.change_chat(
            each, owner, hidden.id, {"is_hidden": True}, hidden.modified_us
        )
    )

    def page(**places):
        found = template.run(lambda each: chats.list_chats(each, owner, 2, **places))
        return [chat.id for chat in found]

    def place(chat):
        return chat.modified_us, chat.id

    ids = [chat.id for chat in made]
    assert page() == ids[:2]
    assert page(after=place(made[1])) == ids[2:]
    assert page(before=place(made[3])) == ids[1:3]
    assert page(before=place(made[0])) == []
    assert page(includes_hidden=True) == [ids[0], hidden.id]


def test_words_are_found_by_their_beginnings_and_operators_are_words(template, owner):
    chat = chat_of(template, owner)
    told = add(template, owner, prompt(chat, text="NOT a zebra-crossing at 9"))

    def found(query):
        hits = template.run(lambda each: search(each, owner, query, 5))
        return [hit.message_id for hit in hits]

    for query in ("zeb", "ZEBRA cross", "not", "9", '"zebra" OR', "zebra*"):
        assert found(query) == ([] if "OR" in query else [told.id])
    for query in ("", "!!", "a " * 17, "x" * 257):
        assert refusal(found, query).fault is ChatFault.INVALID


def on_disk(directory):
    return b"".join(path.read_bytes() for path in directory.iterdir()).lower()


def n_changed(database, act):
    """Count the rows that an operation changes, those of the index among them."""

    def counted(connection):
        raw = connection.connection.driver_connection
        n_before = raw.total_changes
        found = act(connection)
        return raw.total_changes - n_before, found

    return database.run(counted)


def test_a_deletion_costs_no_more_for_what_others_have_written(tmp_path, monkeypatch):
    monkeypatch.setattr("inferd.chats.storage.erasure.ERASED_PAGES", 4)
    database = ChatDatabase(place_of_database(None, tmp_path))
    much = replace(LIMITS, n_messages=100, n_chars=10**6)
    others = chat_of(database, "other")
    for n_before in range(12):
        words = " ".join(
            hashlib.sha256(b"%d %d" % (n_before, place)).hexdigest()
            for place in range(100)
        )
        add(database, "other", prompt(others, text=words), None, much)
    small = chat_of(database, "small")
    add(database, "small", prompt(small, text="Hippopotamus"))

    def delete(chat):
        return lambda each: chats.delete_chat(each, chat.owner, chat.id)

    n_deleted, _ = n_changed(database, delete(small))
    assert n_deleted < 30
    costs = []
    while True:
        n_merged, is_done = n_changed(database, erase_words)
        costs.append(n_merged)
        if is_done:
            break
        if len(costs) in {2, 3, 4}:  # others go on writing and deleting meanwhile
            late = chat_of(database, "small")
            add(database, "small", prompt(late, text="Giraffe"))
            if len(costs) == 4:
                database.run(delete(late))
    assert len(costs) > 8
    assert max(costs) < 60
    assert database.settle()
    assert b"hippo" not in on_disk(tmp_path)
    found = database.run(lambda each: search(each, "small", "giraffe", 5))
    assert len(found) == 2
    database.close()


async def test_a_store_erases_until_nothing_is_left(tmp_path):
    store = ChatStore(None, tmp_path)
    chat = await store.run(lambda each: new_chat(each, "ada"))
    message = prompt(chat, text="Hippopotamus")
    await store.run(lambda each: messages.add_message(each, "ada", message, LIMITS))
    await store.run(lambda each: chats.delete_chat(each, "ada", chat.id))
    with closing(sqlite3.connect(tmp_path / "chats.db")) as reader:
        reader.execute("BEGIN")
        reader.execute("SELECT count(*) FROM chats").fetchone()
        while await store.erase():
            pass
        assert b"hippo" in on_disk(tmp_path)
    assert not await store.erase()
    assert b"hippo" not in on_disk(tmp_path)
    await store.close()


def test_what_is_deleted_has_left_the_files(tmp_path, owner):
    database = ChatDatabase(place_of_database(None, tmp_path))
    chat = chat_of(database, owner)
    add(database, owner, prompt(chat, text="Hippopotamus"))
    add_file(database, owner, chat, data=b"hippo's pixels")
    kept = chat_of(database, owner)
    add(database, owner, prompt(kept, text="Rhinoceros"))
    database.run(lambda each: chats.delete_chat(each, owner, chat.id))
    assert b"hippo's" in on_disk(tmp_path)
    with closing(sqlite3.connect(tmp_path / "chats.db")) as reader:
        reader.execute("BEGIN")
        reader.execute("SELECT count(*) FROM chats").fetchone()
        assert not database.settle()
        while not database.run(erase_words):
            pass
    assert database.settle()
    assert b"hippo" not in on_disk(tmp_path)
    assert b"rhino" in on_disk(tmp_path)
    database.run(lambda each: chats.delete_old(each, 2**60))
    assert database.run(chats.count_all) == (0, 0)
    database.close()
    assert {path.stat().st_mode & 0o077 for path in tmp_path.iterdir()} == {0}


def test_other_revisions_are_refused_and_moves_keep_what_is_stored(tmp_path, owner):
    place = place_of_database(None, tmp_path)
    database = ChatDatabase(place)
    chat = chat_of(database, owner)
    first = add(database, owner, prompt(chat, text="zebra"))

    def move(revision, *, is_upgrade):
        database.run(lambda each: schema.move(each, revision, is_upgrade=is_upgrade))

    move("0001", is_upgrade=False)
    assert refusal(ChatDatabase, place).fault is ChatFault.OLDER
    with pytest.raises(ChatError, match="0001"):
        move("0002", is_upgrade=False)
    move(schema.HEAD, is_upgrade=True)
    assert all_of(database, owner, chat) == [first]
    hits = database.run(lambda each: search(each, owner, "zebra", 5))
    assert [hit.message_id for hit in hits] == [first.id]
    database.run(
        lambda each: each.exec_driver_sql("UPDATE alembic_version SET version_num='9'")
    )
    assert refusal(ChatDatabase, place).fault is ChatFault.NEWER
    with pytest.raises(ChatError, match="does not know"):
        move("0001", is_upgrade=False)
    database.close()


def test_a_database_that_is_locked_full_or_gone_says_so(tmp_path, owner, monkeypatch):
    monkeypatch.setattr("inferd.chats.storage.database.BUSY_S", 0.01)
    database = ChatDatabase(place_of_database(None, tmp_path))
    chat = chat_of(database, owner)
    with closing(sqlite3.connect(tmp_path / "chats.db")) as other:
        other.execute("BEGIN IMMEDIATE")
        assert refusal(add, database, owner, prompt(chat)).fault is ChatFault.LOCKED
    n_pages = database.run(
        lambda each: each.exec_driver_sql("PRAGMA page_count").scalar_one()
    )
    database.run(lambda each: each.exec_driver_sql(f"PRAGMA max_page_count={n_pages}"))
    big = replace(prompt(chat), text="x" * 100_000)
    full = refusal(add, database, owner, big, None, replace(LIMITS, n_chars=10**6))
    assert full.fault is ChatFault.FULL
    assert all_of(database, owner, chat) == []
    (tmp_path / "chats.db").rename(tmp_path / "moved.db")
    assert refusal(add, database, owner, prompt(chat)).fault is ChatFault.GONE
    database.close()
    for path in tmp_path.iterdir():
        path.unlink()
    (tmp_path / "chats.db").write_bytes(b"no database at all" * 100)
    assert refusal(ChatDatabase, database.place).fault is ChatFault.GONE


def test_a_copy_is_put_in_place_while_no_bridge_runs(tmp_path, owner):
    place = place_of_database(None, tmp_path / "state")
    database = ChatDatabase(place)
    chat = chat_of(database, owner)
    copy = tmp_path / "copy"
    back_up(place, copy)
    assert copy.stat().st_mode & 0o777 == 0o600
    assert "exists" in str(refusal(back_up, place, copy))
    database.run(lambda each: chats.delete_chat(each, owner, chat.id))
    database.close()
    with held_name(tmp_path / "state", new_id()):
        assert "stop it" in str(refusal(restore, place, copy))
    restore(place, copy)
    restored = ChatDatabase(place)
    assert restored.run(chats.count_all) == (1, 0)
    restored.close()
    (tmp_path / "no copy").write_bytes(b"x")
    for wrong in ("no copy", "absent"):
        refusal(restore, place, tmp_path / wrong)


def test_a_name_is_held_by_one_process_and_kept_for_the_next(tmp_path):
    with held_name(tmp_path, "a" * 32) as first:
        with held_name(tmp_path, "b" * 32) as second:
            assert (first, second) == ("a" * 32, "b" * 32)
    with held_name(tmp_path, "c" * 32) as third:
        assert third == first


@each_case(
    ("configured", "shown"),
    [
        (None, "sqlite:////state/chats.db"),
        ("/elsewhere/x.db", "sqlite:////elsewhere/x.db"),
        (
            "postgresql://ada:secret@host/inferd",
            "postgresql+psycopg://ada:***@host/inferd",
        ),
        ("mysql://host/inferd", None),
        ("://", None),
    ],
)
def test_a_database_is_a_file_or_a_url_of_postgresql(configured, shown):
    if shown is None:
        with pytest.raises(ChatError, match="chats.database is"):
            place_of_database(configured, Path("/state"))
    else:
        assert place_of_database(configured, Path("/state")).shown == shown
