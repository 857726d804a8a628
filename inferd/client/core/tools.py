"""Python functions as tools: their schema of a signature, their description of a docstring."""

import inspect
import re
from collections.abc import Callable, Mapping, Sequence
from typing import (
    Annotated,
    Final,
    Generic,
    ParamSpec,
    TypeVar,
    Union,
    get_type_hints,
    overload,
)

import msgspec
from msgspec import UNSET, Raw, Struct, UnsetType

from inferd.client.core.answer import ToolCallEvent
from inferd.client.core.failures import ClientError
from inferd.client.core.structures import JsonSchema, closed
from inferd.wire.blocks import Tool

P = ParamSpec("P")
R = TypeVar("R")
AnyFunction = Callable[..., object]  # type: ignore[explicit-any]  # of any parameters

_ARGS: Final = re.compile(r"^Args:[ ]*\n((?:[ \t]+.*\n?|\n)+)", re.MULTILINE)
_ARG: Final = re.compile(
    r"^(\s+)(\w+)(?:\s*\([^)]*\))?:[ ]*(.*(?:\n\1\s+\S.*)*)", re.MULTILINE
)
_NAMED: Final = (
    inspect.Parameter.POSITIONAL_OR_KEYWORD,
    inspect.Parameter.KEYWORD_ONLY,
)


class ToolError(Exception):
    """A tool cannot do what it was called for; the model is told why, and may go on.

    Any other exception of a tool ends ``run_tools``.
    """


class CallableTool:
    """A function that a model may call.

    Args:
        function: whose parameters all have types that ``msgspec`` knows.
        name: by which the model knows it; the function's own by default.
        description: for the model; by default the docstring up to its sections.

    Raises:
        TypeError: no schema can be made of a parameter.
    """

    def __init__(
        self, function: AnyFunction, name: str = "", description: str = ""
    ) -> None:
        self._callable = function
        self.name = name or function.__name__
        self.description = description or _summary(inspect.getdoc(function) or "")
        self._arguments = _arguments(function)
        self.definition: Final = Tool(
            self.name, self.description, Raw(msgspec.json.encode(self.schema))
        )
        """The tool as a request offers it."""
        self.__doc__ = function.__doc__

    @property
    def is_async(self) -> bool:
        """Whether the function is a coroutine function, which ``AsyncClient`` awaits."""
        return inspect.iscoroutinefunction(self._callable)

    @property
    def schema(self) -> JsonSchema:
        """The JSON schema of its arguments."""
        found = msgspec.json.schema(self._arguments)
        definitions = found["$defs"]
        own = definitions.pop("Arguments")
        return closed({**own, **({"$defs": definitions} if definitions else {})})

    def bind(self, call: ToolCallEvent) -> Callable[[], object]:
        """Return the call of the function with the arguments of a model.

        Raises:
            ToolError: they do not fit the parameters.
        """
        try:
            arguments = msgspec.convert(call.arguments, self._arguments)
        except msgspec.ValidationError as error:
            raise ToolError(f"invalid arguments: {error}") from error
        names = arguments.__struct_fields__
        values = ((name, getattr(arguments, name)) for name in names)
        given = {name: value for name, value in values if value is not UNSET}
        return lambda: self._callable(**given)


class PythonTool(CallableTool, Generic[P, R]):
    """A tool that is called like its function."""

    def __init__(
        self, function: Callable[P, R], name: str = "", description: str = ""
    ) -> None:
        super().__init__(function, name, description)
        self._function = function

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:  # noqa: D102  # as the function
        return self._function(*args, **kwargs)


@overload
def tool(function: Callable[P, R], /) -> PythonTool[P, R]: ...
@overload
def tool(
    *, name: str = "", description: str = ""
) -> Callable[[Callable[P, R]], PythonTool[P, R]]: ...
def tool(
    function: Callable[P, R] | None = None, /, *, name: str = "", description: str = ""
) -> PythonTool[P, R] | Callable[[Callable[P, R]], PythonTool[P, R]]:
    """Make a tool of a function, as a decorator with or without arguments.

    The model reads the docstring: its text up to the first section, and the descriptions of
    parameters in ``Args:``. The types of the parameters become the schema.

    Args:
        function: to decorate.
        name: by which the model knows it; the function's own by default.
        description: for the model, instead of the docstring's.

    Raises:
        TypeError: a parameter has no type, or one that no schema can be made of.
    """
    if function is not None:
        return PythonTool(function)
    return lambda each: PythonTool(each, name, description)


ToolFunctions = Sequence[CallableTool | AnyFunction]
"""Tools, or functions that become tools."""


def tools_of(functions: ToolFunctions) -> Mapping[str, CallableTool]:
    """Return tools by their names; plain functions become tools.

    Raises:
        ClientError: two have the same name.
        TypeError: no schema can be made of one.
    """
    made = [
        each if isinstance(each, CallableTool) else CallableTool(each)
        for each in functions
    ]
    named = {each.name: each for each in made}
    if len(named) < len(made):
        raise ClientError("two tools have the same name")
    return named


def result_text(value: object) -> str:
    """Return what a tool returned as the text that the model reads.

    A text stays as it is; everything else becomes JSON.

    Raises:
        TypeError: it cannot be written as JSON.
    """
    return value if isinstance(value, str) else msgspec.json.encode(value).decode()


def _arguments(function: AnyFunction) -> type[Struct]:
    """Make a struct of the parameters of a function."""
    hints = get_type_hints(function, include_extras=True)
    texts = _parameter_texts(inspect.getdoc(function) or "")
    fields: list[tuple[str, object] | tuple[str, object, object]] = []
    for name, parameter in inspect.signature(function).parameters.items():
        if name not in hints or parameter.kind not in _NAMED:
            raise TypeError(f"parameter {name} of {function.__name__} has no type")
        kind: object = hints[name]
        if text := texts.get(name):
            kind = Annotated[hints[name], msgspec.Meta(description=text)]
        if parameter.default is inspect.Parameter.empty:
            fields.append((name, kind))
        else:
            fields.append((name, Union[kind, UnsetType], UNSET))  # noqa: UP007  # kind is a value
    return msgspec.defstruct(
        "Arguments",
        fields,
        kw_only=True,
        forbid_unknown_fields=True,
    )


def _summary(docstring: str) -> str:
    """Return a docstring up to its first section."""
    return re.split(r"^\w+:[ ]*$", docstring, maxsplit=1, flags=re.MULTILINE)[0].strip()


def _parameter_texts(docstring: str) -> dict[str, str]:
    section = _ARGS.search(docstring)
    if section is None:
        return {}
    return {name: " ".join(text.split()) for _, name, text in _ARG.findall(section[1])}
