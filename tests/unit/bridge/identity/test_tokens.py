import os
from base64 import b64encode
from contextlib import nullcontext
from hashlib import sha256

import pytest
from hypothesis import given, strategies as st

from inferd.bridge.identity.throttle import FailureThrottle
from inferd.bridge.identity.token import (
    ID_BYTES,
    SECRET_BYTES,
    TokenRecord,
    by_id,
    find_token,
    looks_like_token,
    make_token,
    parse_record,
)
from inferd.bridge.identity.token_file import (
    ApiTokens,
    TokenFileError,
    changing_tokens,
    read_tokens,
)
from inferd.limits.bridge import FAILED_TOKENS, MAX_FAILED_SENDERS, MAX_TOKENS
from tests.cases import each_case

RANDOM = bytes(range(ID_BYTES + SECRET_BYTES))


def record(name: str = "ada", number: int = 0) -> tuple[str, TokenRecord]:
    text, token_id, digest = make_token(bytes([number]) + RANDOM[1:])
    return text, TokenRecord(id=token_id, name=name, sha256=digest)


# --- tokens -------------------------------------------------------------------------


@each_case("text", ["", "none", "ollama", "EMPTY", "not-needed", "sk-no-key-required"])
def test_a_word_that_fills_the_place_of_a_token_is_none(text):
    assert not looks_like_token(text)


@each_case("text", ["inferd-", "sk-proj-" + "x" * 12, "0" * 64])
def test_what_a_service_gives_out_is_a_token_of_somebody(text):
    assert looks_like_token(text)


def test_a_token_is_found_by_its_id_and_its_whole_secret():
    text, entry = record()
    other, _ = record(number=1)
    assert looks_like_token(text)
    assert find_token(text, by_id([entry])) is entry
    assert find_token(text[:-1] + "0", by_id([entry])) is None
    assert find_token(other, by_id([entry])) is None
    assert text.encode().hex() not in entry.sha256
    assert sha256(b"").hexdigest() != entry.sha256


@given(st.text())
def test_no_other_text_is_a_token(text):
    empty = TokenRecord(id="0" * 12, name="x", sha256=sha256(b"").hexdigest())
    assert find_token(text, {"": empty, empty.id: empty}) in (None, empty)
    assert find_token(f"inferd-{text}", by_id([record()[1]])) is None


def test_a_record_with_another_scope_is_refused_by_name():
    with pytest.raises(ValueError, match="scopes are inference, models, admin"):
        parse_record({"id": "0" * 12, "name": "a", "sha256": "0" * 64, "scopes": ["x"]})


def test_no_token_has_the_name_of_the_bridges_own_user():
    with pytest.raises(ValueError, match="own user"):
        parse_record({"id": "0" * 12, "name": "local", "sha256": "0" * 64})


# --- the file -----------------------------------------------------------------------


def test_tokens_are_written_for_their_owner_alone_and_read_again(tmp_path):
    path = tmp_path / "made" / "tokens.json"
    assert read_tokens(path) == ()
    _, entry = record()
    with changing_tokens(path) as tokens:
        tokens.append(entry)
    assert read_tokens(path) == (entry,)
    assert path.stat().st_mode & 0o777 == 0o600


def test_a_file_that_others_may_read_is_refused(tmp_path):
    path = tmp_path / "tokens.json"
    with changing_tokens(path) as tokens:
        tokens.append(record()[1])
    path.chmod(0o660)
    with pytest.raises(TokenFileError, match="chmod 6[04]0"):
        read_tokens(path)


@pytest.mark.parametrize(("mode", "is_read"), [(0o640, True), (0o644, False)])
def test_roots_file_may_be_read_by_a_group(tmp_path, monkeypatch, mode, is_read):
    path = tmp_path / "tokens.json"
    with changing_tokens(path, reader_gid=os.getegid()) as tokens:
        tokens.append(record()[1])
    assert path.stat().st_mode & 0o777 == 0o640
    path.chmod(mode)
    owner = path.stat().st_uid
    monkeypatch.setattr("inferd.service.private_file.ROOT_UID", owner)
    with nullcontext() if is_read else pytest.raises(TokenFileError, match="chmod 640"):
        assert len(read_tokens(path)) == 1


@pytest.mark.parametrize("text", ["", "{", '{"tokens":[{"id":1}]}', "\xff"])
def test_an_unreadable_file_is_an_error_and_no_empty_list(tmp_path, text):
    path = tmp_path / "tokens.json"
    path.write_bytes(text.encode("latin-1"))
    path.chmod(0o600)
    with pytest.raises(TokenFileError):
        read_tokens(path)


def test_a_change_that_fails_leaves_the_file(tmp_path):
    path = tmp_path / "tokens.json"
    with changing_tokens(path) as tokens:
        tokens.append(record()[1])
    with pytest.raises(TokenFileError, match=str(MAX_TOKENS)):
        with changing_tokens(path) as tokens:
            tokens *= MAX_TOKENS + 1
    assert len(read_tokens(path)) == 1


def test_a_table_follows_its_file(tmp_path):
    path = tmp_path / "tokens.json"
    table = ApiTokens(path)
    assert table.records() == {}
    _, entry = record()
    with changing_tokens(path) as tokens:
        tokens.append(entry)
    assert table.records() == {entry.id: entry}
    path.chmod(0o644)
    for _ in range(2):  # not the second time either
        with pytest.raises(TokenFileError):
            table.records()
    path.chmod(0o600)
    assert table.records() == {entry.id: entry}
    with changing_tokens(path) as tokens:
        tokens.clear()
    assert table.records() == {}


# --- bounds -------------------------------------------------------------------------


def test_failures_are_bounded_for_each_sender_alone():
    throttle = FailureThrottle()
    for _ in range(FAILED_TOKENS):
        assert throttle.wait_s("a", 100.0) == 0
        throttle.failed("a", 100.0)
    assert throttle.wait_s("a", 100.0) > 0
    assert throttle.wait_s("b", 100.0) == 0
    assert throttle.wait_s("a", 101.0) == 0
    throttle.failed("a", 101.0)
    assert throttle.wait_s("a", 101.0) > 0


def test_senders_are_forgotten_oldest_first():
    throttle = FailureThrottle()
    for _ in range(FAILED_TOKENS):
        throttle.failed("first", 0.0)
    for number in range(MAX_FAILED_SENDERS - 1):
        throttle.failed(str(number), 0.0)
    assert throttle.wait_s("first", 0.0) > 0
    throttle.failed("one more", 0.0)
    assert throttle.wait_s("first", 0.0) == 0


def test_randomness_is_all_used():
    text, _, _ = make_token(os.urandom(ID_BYTES + SECRET_BYTES))
    assert len(text) == len("inferd-") + 2 * (ID_BYTES + SECRET_BYTES) + 1
    assert b64encode(text.encode())
