"""The reference of the APIs of the HTTP bridge, from their tables of fields."""

import json
from collections.abc import Iterator, Sequence

from inferd.bridge.apis import APIS
from inferd.bridge.translation.api import Api
from inferd.bridge.translation.fields import Field, FieldTable, Use
from tools.documents.markdown import NOTE, table

TITLES = {
    "openai": "OpenAI's API",
    "anthropic": "Anthropic's API",
    "ollama": "Ollama's API",
    "whisper": "The API of whisper.cpp's server",
    "native": "The daemon's own protocol over HTTP",
    "chats": "Chats that the bridge keeps",
    "admin": "Models and the daemon, managed over HTTP",
}
INTRO = """
What the HTTP bridge does with each field of a request.
A field with the value `null` counts as left out, as an empty text of a form does, and one that no table has is refused with 400.
A refused field is accepted with the values that ask for nothing, if its row has any.
Parameters behind `?` in the address are treated in the same way; a route without a table of them takes none.
Routes that no API has, such as `/health` and `/metrics`, do not look at them.
"""


def api_references() -> dict[str, str]:
    """Write the reference of each API, by the name of its file."""
    return {f"bridge-{api.name}.md": reference(api) for api in APIS}


def reference(api: Api) -> str:
    """Write the reference of one API."""
    tables = [
        *(operation.table for operation in api.operations),
        *api.parts,
        *(lookup.table for lookup in api.lookups if lookup.table is not None),
        *(operation.table for operation in api.managed if operation.table),
        *(operation.table for operation in api.hosted if operation.table),
        *(operation.query.table for operation in api.hosted),
        api.query.table,
        *([api.models_query.table] if api.models_query else ()),
    ]
    distinct = {id(each): each for each in tables}  # routes may share one
    sections = [
        f"## {title_of(each)}\n\n"
        + table(("field", "what becomes of it", ""), rows(each.fields))
        for each in distinct.values()
        if each.fields
    ]
    if api.managed:
        heads = ("route", "scope", "what it does")
        listed = [
            (
                f"`{each.method} {each.path.replace(':path', '')}`",
                each.scope,
                each.summary,
            )
            for each in api.managed
        ]
        sections.insert(0, f"## Routes\n\n{table(heads, listed)}")
    if api.hosted:
        served = [
            (f"`{each.method} {each.path}`", f"{each.summary}.") for each in api.hosted
        ]
        sections.insert(0, f"## Routes\n\n{table(('route', 'what it does'), served)}")
    if api.lookups:
        others = [
            (f"`{lookup.method} {lookup.path}`", lookup.note) for lookup in api.lookups
        ]
        sections.append("## Other routes\n\n" + table(("route", "answer"), others))
    return NOTE + f"# {TITLES[api.name]}\n{INTRO}\n" + "\n".join(sections)


def title_of(fields: FieldTable) -> str:
    """Write the title of a table as code."""
    return f"`{fields.title.strip('`')}`"


def rows(fields: Sequence[Field]) -> list[tuple[str, str, str]]:
    """Write the rows of a table: what is honoured first."""
    order = list(Use)
    return [
        (f"`{field.name}`", field.use.value, note_of(field))
        for field in sorted(fields, key=lambda field: order.index(field.use))
    ]


def note_of(field: Field) -> str:
    """Write what there is to say of a field."""
    return " ".join(sentences(field))


def sentences(field: Field) -> Iterator[str]:
    """Give its note, and the values that ask for nothing."""
    if field.note:
        yield field.note[0].upper() + field.note[1:].removesuffix(".") + "."
    if field.neutral:
        yield f"Accepted: {', '.join(f'`{json.dumps(value)}`' for value in field.neutral)}."
