from inferd.cli.models import transfer
from inferd.cli.models.transfer import TransferProgress, describe_transfer
from inferd.models.pull.download import WantedFile
from tests.cases import each_case

FILE = WantedFile("m.gguf", "https://h/m.gguf", "0" * 64)


@each_case(
    ("done", "text"),
    [
        ((0, 1_000, 0.0), "[--------------------] 0 % of 1.0 kB"),
        (
            (500, 1_000, 50.0),
            "[##########----------] 50 % of 1.0 kB, 50 B/s, 10 s left",
        ),
        (
            (1_000, 1_000, 1e6),
            "[####################] 100 % of 1.0 kB, 1.0 MB/s, 0 s left",
        ),
        ((2_000_000, None, 0.0), "2.0 MB"),
        ((2_000_000, None, 1e6), "2.0 MB, 1.0 MB/s"),
    ],
)
def test_a_transfer_is_described(done, text):
    assert describe_transfer(*done) == text


def test_a_pipe_gets_a_line_for_each_tenth(capsys):
    with TransferProgress(lambda: 0.0) as progress:
        show = progress.of_file(FILE)
        for n_done in range(0, 1001, 7):
            show(n_done, 1000)
        show(1000, 1000)
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 11
    assert lines[1] == "m.gguf: [##------------------] 10 % of 1.0 kB"


def test_a_terminal_gets_one_line_with_the_rate_of_what_came_now(capsys, monkeypatch):
    monkeypatch.setattr("sys.stderr.isatty", lambda: True)
    seconds = iter([0.0, 1.0, 2.0, 3.0])
    with TransferProgress(lambda: next(seconds)) as progress:
        show = progress.of_file(FILE)
        show(500, 1000)  # were there before
        show(501, 1000)
        show(600, 1000)
    written = capsys.readouterr().err
    assert "\n" not in written
    assert written.endswith(
        "m.gguf: [############--------] 60 % of 1.0 kB, 50 B/s, 8 s left\r\x1b[2K"
    )


def test_a_file_of_unknown_length_shows_its_bytes(capsys):
    with TransferProgress(lambda: 0.0) as progress:
        show = progress.of_file(FILE)
        for n_done in range(5):
            show(n_done, None)
    assert capsys.readouterr().err == "m.gguf: 0 B\n"
    assert transfer.LINE_PERCENT == 10
