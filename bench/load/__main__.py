"""The clients' process: a scene on a line of stdin, its answers on a line of stdout."""

import sys

import msgspec

from bench.load.library import KIND, play_with_library
from bench.load.play import play
from bench.load.scene import Answer, Scene
from bench.load.speech import ServerError, speech
from inferd.client.exchange import ClientError


class Told(msgspec.Struct):
    """Answers, or why there are none."""

    answers: list[Answer]
    error: str = ""


def main() -> None:
    """Play scene after scene."""
    for line in sys.stdin:
        scene = msgspec.json.decode(line, type=Scene)
        try:
            told = Told(_answers(scene))
        except (ServerError, ClientError, OSError) as error:
            told = Told([], f"{type(error).__name__}: {error}")
        print(msgspec.json.encode(told).decode(), flush=True)


def _answers(scene: Scene) -> list[Answer]:
    if scene.kind == KIND:
        return play_with_library(scene.address, scene.asks)
    return play(speech(scene.kind, scene.address), scene.asks)


if __name__ == "__main__":
    main()
