from inferd.worker.llama.grammar.json_schema import direct_subschemas
from tests.cases import each_case


@each_case(
    ("schema", "steps"),
    [
        ({"type": "object", "title": "x"}, []),
        ({"properties": {"a": {}, "b": True}}, ["/properties/a"]),
        ({"items": {"items": {}}}, ["/items"]),
        ({"anyOf": [{}, True, {}]}, ["/anyOf/0", "/anyOf/2"]),
        (
            {"$defs": {"items": {}}, "not": {"properties": {}}},
            ["/$defs/items", "/not"],
        ),
    ],
)
def test_schemas_are_found_under_keywords_in_lists_and_by_name(schema, steps):
    assert [step for step, _ in direct_subschemas(schema)] == steps
