"""Types as JSON schemas, and texts as values of these types.

``msgspec`` knows structs, dataclasses, typed dictionaries, named tuples, enumerations and
containers of them; a model of pydantic writes and checks its own schema.
"""

from typing import Final, Generic, Protocol, TypeVar, runtime_checkable

import msgspec

from inferd.client.core.answer import FinalAnswer
from inferd.client.core.failures import AnswerNotOfType

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)

JsonSchema = dict[str, object]

_LEFT_OUT: Final = frozenset(["discriminator"])
"""Annotations of schemas that constrain nothing, and that a grammar cannot be made of."""
_BY_NAME: Final = frozenset(["properties", "$defs", "definitions"])
"""Keywords whose value maps names to schemas."""
_DATA: Final = frozenset(["default", "const", "enum", "examples", "required"])
"""Keywords whose value is JSON of the answer, no schema."""


@runtime_checkable
class ValidatedModel(Protocol[T_co]):
    """A class that writes its own schema and checks JSON, as a model of pydantic does."""

    def model_json_schema(self) -> JsonSchema:
        """Return the JSON schema of the class."""
        ...

    def model_validate_json(self, json_data: str) -> T_co:
        """Return an instance.

        Raises:
            ValueError: the JSON is not one.
        """
        ...


class AnswerType(Generic[T]):
    """A type, with its schema and what reads its values.

    Args:
        wanted: the type.

    Raises:
        TypeError: no JSON schema can be made of it.
    """

    def __init__(self, wanted: type[T]) -> None:
        self._wanted = wanted
        model: object = wanted
        self._model = model if isinstance(model, ValidatedModel) else None
        if self._model is None:
            self.schema = closed(msgspec.json.schema(wanted))
        else:
            self.schema = closed(self._model.model_json_schema())

    def read(self, answer: FinalAnswer) -> T:
        """Return the value that an answer is.

        Raises:
            AnswerNotOfType: the answer was cut short, or is not of the type.
        """
        try:
            if self._model is not None:
                value: T = self._model.model_validate_json(answer.text)
                return value
            return msgspec.json.decode(answer.text, type=self._wanted)
        except ValueError as error:  # of msgspec and of pydantic
            is_cut = answer.structure_complete is False
            reason = f"the answer ended early ({answer.stop_reason})" if is_cut else ""
            text = reason or f"the answer is not a {_name(self._wanted)}: {error}"
            raise AnswerNotOfType(answer.text, text, is_cut=is_cut) from error


def closed(schema: JsonSchema) -> JsonSchema:
    """Return a schema whose objects have only the properties that it names.

    Otherwise a model may add properties of its own until its tokens are used up.
    """
    found = {
        name: _closed_value(name, value)
        for name, value in schema.items()
        if name not in _LEFT_OUT
    }
    if "properties" in found:
        found.setdefault("additionalProperties", False)
    return found


def _closed_value(name: str, value: object) -> object:
    if name in _DATA:
        return value
    if isinstance(value, dict):
        if name in _BY_NAME:
            return {key: closed(schema) for key, schema in value.items()}
        return closed(value)
    if isinstance(value, list):
        return [closed(each) if isinstance(each, dict) else each for each in value]
    return value


def _name(wanted: object) -> str:
    return getattr(wanted, "__name__", None) or str(wanted)
