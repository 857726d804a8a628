import json

from inferd.backend.job import ToolSpec, Turn
from inferd.dialects.families.gemma4 import GEMMA4
from tests.cases import each_case

USER = Turn("user", "Hi.")


def declared(schema):
    tool = ToolSpec(name="f", description="d", input_schema=json.dumps(schema))
    prompt = GEMMA4.render([USER], [tool], False)
    text = prompt.partition("<tool|>")[0].partition("declaration:")[2]
    return text.replace('<|"|>', "'")


@each_case(
    ("schema", "member"),
    [
        ({"type": "string", "enum": ["x", "y"]}, "enum:['x','y'],type:'STRING'"),
        ({"type": ["string", "null"]}, "nullable:true,type:'STRING'"),
        ({"type": "integer", "nullable": True}, "nullable:true,type:'INTEGER'"),
        (
            {"anyOf": [{"type": "number"}, {"type": "null"}]},
            "nullable:true,type:'NUMBER'",
        ),
        ({"$ref": "#/$defs/t", "description": "e"}, "description:'e',type:'BOOLEAN'"),
        ({}, "type:''"),
        (True, "type:''"),
        ({"type": "object"}, "properties:{},type:'OBJECT'"),
        (
            {"type": "array", "items": {"type": "string", "default": {"x": None}}},
            "items:{default:{'x':null},type:'STRING'},type:'ARRAY'",
        ),
        (
            {"type": "object", "properties": {"b": {}}, "required": ["b"]},
            "properties:{b:{type:''}},required:['b'],type:'OBJECT'",
        ),
    ],
)
def test_a_declaration_tells_what_it_can_of_an_argument(schema, member):
    root = {"properties": {"a": schema}, "$defs": {"t": {"type": "boolean"}}}
    wanted = f"parameters:{{properties:{{a:{{{member}}}}},type:'OBJECT'}}"
    assert declared(root) == f"f{{description:'d',{wanted}}}"


@each_case("schema", [{}, True, "x", []])
def test_a_schema_that_says_nothing_is_not_told_of(schema):
    assert declared(schema) == "f{description:'d'}"


def test_a_declaration_is_only_so_deep():
    schema = {"type": "object", "properties": {"last": {"type": "null"}}}
    for _ in range(40):
        schema = {"type": "object", "properties": {"a": schema}}
    text = declared(schema)
    assert text.count("a:{") == 16
    assert "last" not in text


@each_case("ends_with_result", [True, False])
@each_case("thinks", [True, False])
def test_only_a_result_is_followed_by_an_open_thought(*, thinks, ends_with_result):
    turns = [USER, Turn("tool", "1")] if ends_with_result else [USER]
    prompt = GEMMA4.render(turns, [], thinks)
    assert bool(GEMMA4.open_thought(prompt)) == (thinks and ends_with_result)
    assert not GEMMA4.open_thought(prompt + GEMMA4.close_thought)


def test_its_turns_have_markers_of_their_own():
    assert GEMMA4.recognises("llama", "{{ '<|turn>' + role }}")
    assert not GEMMA4.recognises("gemma4", "<start_of_turn>")
    assert GEMMA4.recognises("gemma4", "")
    assert not GEMMA4.recognises("gemma3", "")
