"""Functions become tools: schema, description, arguments, results."""

from typing import Literal

import pytest

from inferd.client.core.answer import ToolCallEvent
from inferd.client.core.failures import ClientError
from inferd.client.core.tools import ToolError, result_text, tool, tools_of


@tool
def weather(
    city: str,
    *,
    unit: Literal["c", "f"] = "c",
    days: list[int] = [1],  # noqa: B006  # as people write them
) -> str:
    """Current weather of a city.

    From the nearest station.

    Args:
        city: its name,
            in English.
        unit (str): of the temperature.

    Returns:
        A sentence.
    """
    return f"{city} {unit} {days}"


def call(arguments: object) -> ToolCallEvent:
    return ToolCallEvent(id="1", name="weather", arguments=arguments)


def test_a_signature_and_a_docstring_become_a_definition():
    assert weather.name == "weather"
    assert weather.description == (
        "Current weather of a city.\n\nFrom the nearest station."
    )
    assert weather.schema["required"] == ["city"]
    assert weather.schema["additionalProperties"] is False
    assert weather.schema["properties"] == {
        "city": {"type": "string", "description": "its name, in English."},
        "unit": {"enum": ["c", "f"], "description": "of the temperature."},
        "days": {"type": "array", "items": {"type": "integer"}},
    }


def test_a_tool_is_called_like_its_function_and_with_a_models_arguments():
    assert weather("Rome", unit="f") == "Rome f [1]"
    assert weather.bind(call({"city": "Rome", "days": [2, 3]}))() == "Rome c [2, 3]"
    for wrong in ({}, {"city": 1}, {"city": "x", "more": 1}, "Rome", None):
        with pytest.raises(ToolError, match="invalid arguments"):
            weather.bind(call(wrong))


def test_a_function_without_types_and_two_of_one_name_are_refused():
    def untyped(city):
        """Do."""

    def several(*cities: str) -> None:
        """Do."""

    for function in (untyped, several):
        with pytest.raises(TypeError, match="has no type"):
            tools_of([function])
    with pytest.raises(ClientError, match="the same name"):
        tools_of([weather, tool(name="weather")(lambda: "")])


def test_what_a_tool_returns_is_text_or_json():
    assert result_text("as it is") == "as it is"
    assert result_text({"a": [1, None]}) == '{"a":[1,null]}'
