import pytest

MOCK = "[[backend]]\nkind = 'mock'\nname = '{}'\n"


@pytest.fixture
def file(short_dir):
    return short_dir / "c.toml"


def test_a_sound_configuration_is_told_with_its_backends(inferd, file):
    file.write_text(MOCK.format("a") + MOCK.format("b"))
    assert inferd("config", "check", "--config", file) == (
        0,
        f"{file}: ok, backends: a, b\n",
        "",
    )


def test_every_fault_is_a_line_and_the_exit_code_is_that_of_serve(inferd, file):
    file.write_text("no = 1\n[limits]\ndrain_s = 'x'\n")
    code, stdout, stderr = inferd("config", "check", "--config", file)
    assert (code, stdout) == (2, "")
    allowed = (
        "access, admission, backend, bridge, bridge_helper, chats, limits, listen, log, memory, "
        "models, users"
    )
    assert stderr.splitlines() == [
        f"error: {file}: no: no such key; allowed: {allowed}",
        f"error: {file}: limits.drain_s = 'x': expected `float`, got `str`",
        "",
        "hint: docs/configuration.md has all keys and what they may be",
    ]


def test_what_this_machine_lacks_is_told_all_at_once(inferd, file):
    file.write_text(
        "[listen]\ngroup = 'nobody-has-this'\n"
        "[access]\ninfer = {uids = ['no-such-user']}\n"
        "[[users.ranges]]\nfirst = 100000\ncount = 1\nowner = 'no-such-owner'\n"
        "[[backend]]\nkind = 'llamacpp'\nname = 'a'\nmodel = 'no-such-model'\n"
    )
    code, _, stderr = inferd("config", "check", "--config", file)
    told = [line.removeprefix(f"error: {file}: ") for line in stderr.splitlines()]
    assert code == 2
    assert told[0].startswith("backend[0]: backend a: model = 'no-such-model': ")
    assert "no-such-user" in told[1]
    assert "no-such-owner" in told[2]
    assert told[3] == "listen.group: group not found: 'nobody-has-this'"


def test_every_model_of_a_ladder_is_looked_for(inferd, file):
    file.write_text(
        "[[backend]]\nkind = 'llamacpp'\nname = 'a'\nmodel = 'auto'\n"
        "ladder = ['no-large', '/small.gguf', 'no-middle']\n"
    )
    _, _, stderr = inferd("config", "check", "--config", file)
    told = [line for line in stderr.splitlines() if line.startswith("error: ")]
    assert len(told) == 2
    assert "model = 'no-large': " in told[0]
    assert "model = 'no-middle': " in told[1]


def test_models_of_the_store_that_are_named_are_looked_for(inferd, file):
    file.write_text("[models]\nserve = ['me/missing']\n")
    code, _, stderr = inferd("config", "check", "--config", file)
    assert code == 2
    assert stderr.startswith(f"error: {file}: models.serve: me/missing: ")


def test_the_file_that_would_be_served_is_checked(inferd, short_dir):
    code, stdout, stderr = inferd("config", "check")
    # The embedded model is not in this cache.
    assert (code, stdout) == (2, "")
    assert stderr.startswith("error: backend[0]: backend chat: embedded:chat is not in")
    (short_dir / "inferd").mkdir()
    found = short_dir / "inferd" / "config.toml"
    found.write_text(MOCK.format("a"))
    assert inferd("config", "check").stdout == f"{found}: ok, backends: a\n"


@pytest.mark.parametrize(
    ("content", "reason"),
    [(None, "No such file or directory"), (b"\xff", "not UTF-8: ")],
)
def test_a_file_that_cannot_be_read_is_an_error(content, reason, inferd, file):
    if content is not None:
        file.write_bytes(content)
    code, _, stderr = inferd("config", "check", "--config", file)
    assert (code, stderr.startswith(f"error: configuration {file}: {reason}")) == (
        2,
        True,
    )
