import re

from hypothesis import given, settings, strategies as st

from inferd.cli.chat.screen.live_region import LiveRegion


class Screen:
    """What a terminal does with the few sequences that lines are drawn with."""

    def __init__(self, height: int) -> None:
        self.height = height
        self.lines = [""]
        self.row = 0
        self.column = 0

    @property
    def top(self) -> int:
        """The first row that the cursor can reach."""
        return max(0, len(self.lines) - self.height)

    def write(self, text: str) -> None:
        for part in re.findall(r"\x1b\[\d*[AJ]|\r|\n|[^\x1b\r\n]+", text):
            if part == "\r":
                self.column = 0
            elif part == "\n":
                self.row += 1
                self.lines += [""] * (self.row + 1 - len(self.lines))
            elif part.endswith("A"):
                self.row = max(self.top, self.row - int(part[2:-1]))
            elif part == "\x1b[J":
                self.lines[self.row] = self.lines[self.row][: self.column]
                self.lines[self.row + 1 :] = [""] * len(self.lines[self.row + 1 :])
            else:
                line = self.lines[self.row].ljust(self.column)
                end = line[self.column + len(part) :]
                self.lines[self.row] = line[: self.column] + part + end
                self.column += len(part)

    @property
    def shown(self) -> list[str]:
        return self.lines[: self.row + 1]


LINES = st.lists(st.sampled_from(["a", "b", "cc", ""]), max_size=6)


@settings(max_examples=40)
@given(st.lists(LINES, min_size=1, max_size=8))
def test_lines_are_replaced_by_those_that_are_drawn_last(drawings):
    screen, region = Screen(50), LiveRegion(50)
    for lines in drawings:
        screen.write(region.draw(lines))
        assert screen.shown == (lines or [""])
    screen.write(region.finish(drawings[-1]))
    screen.write(region.draw(["next"]))
    assert screen.shown == [*drawings[-1], "next"]


@settings(max_examples=40)
@given(st.lists(LINES, min_size=1, max_size=6), st.integers(2, 4))
def test_what_has_left_the_screen_is_never_written_again(drawings, height):
    screen, region = Screen(height), LiveRegion(height)
    for lines in drawings:
        before, n_gone = [*screen.lines], screen.top
        screen.write(region.draw(lines))
        assert screen.lines[:n_gone] == before[:n_gone]


def test_a_text_that_grows_is_written_once():
    screen, region = Screen(5), LiveRegion(5)
    written = 0
    for n_lines in range(1, 200):
        drawn = region.draw([f"line {number}" for number in range(n_lines)])
        screen.write(drawn)
        written += len(drawn)
    assert screen.shown == [f"line {number}" for number in range(199)]
    assert written < 199 * 15
