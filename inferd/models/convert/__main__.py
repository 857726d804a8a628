"""Convert a model: ``python -m convert RECIPE DIRECTORY TARGET``."""

import argparse
import sys
from pathlib import Path

from .recipes import RECIPES, write_model
from .source import SourceError


def main() -> int:
    """Read the sources of a recipe from a directory and write the model file."""
    parser = argparse.ArgumentParser(prog="python -m convert", description=__doc__)
    parser.add_argument("recipe", choices=RECIPES)
    parser.add_argument("directory", type=Path)
    parser.add_argument("target", type=Path)
    arguments = parser.parse_args()
    try:
        model = RECIPES[arguments.recipe](arguments.directory)
    except SourceError as error:
        parser.exit(1, f"error: {error}\n")
    write_model(arguments.target, model)
    return 0


if __name__ == "__main__":
    sys.exit(main())
