"""The embedded models, where the store has them."""

from pathlib import Path

from inferd.config.find_model import find_model
from inferd.paths import model_stores


def embedded_path(name: str) -> Path:
    """Return the path of an embedded model's file."""
    found = find_model(f"embedded:{name}", stores=model_stores())
    assert found is not None
    return Path(found.model.path)
