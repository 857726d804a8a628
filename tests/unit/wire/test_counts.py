from inferd.wire.codec import (
    decode_blocks,
    decode_embed,
    decode_generate,
    decode_rerank,
)
from tests.cases import each_case
from tests.fakes.streams import blocks, embed, generate, rerank

TOOL = {"name": "t", "description": "secret", "input_schema": {}}


@each_case(
    ("request_", "facts"),
    [
        (decode_generate(generate()), {}),
        (decode_blocks(blocks()), {"n_attachments": 0, "n_tools": 0}),
        (decode_blocks(blocks(tools=[TOOL])), {"n_attachments": 0, "n_tools": 1}),
        (decode_embed(embed()), {"n_inputs": 1}),
        (decode_rerank(rerank()), {"n_documents": 2}),
    ],
)
def test_the_contents_of_a_request_are_counted(request_, facts):
    assert request_.counts() == facts
