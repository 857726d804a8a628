"""Lines that are valid, a handful for each surface: what the mutator starts from."""

from collections.abc import Mapping, Sequence
from typing import Final, Literal, get_args

SurfaceName = Literal["v1", "v2", "embed", "rerank", "admin"]
SURFACES: Final[tuple[SurfaceName, ...]] = get_args(SurfaceName)

_CANCELS: Final = (
    b'{"type":"cancel","id":"r1"}',
    b'{"id":"r2","type":"cancel","more":[1,{"a":null}]}',
)

_APPENDS: Final = (
    b'{"type":"append","id":"r5","attachment_id":"a1","bytes":"AAAAAA=="}',
    b'{"type":"append","id":"r5","attachment_id":"a1","fd":0,"end":true}',
    b'{"end":true,"attachment_id":"a2","id":"r1","bytes":null,"type":"append"}',
)

_V1: Final = (
    b'{"messages":[{"role":"user","content":"hi"}]}',
    (
        b'{"id":"r1","messages":[{"role":"system","content":"Be brief."},'
        b'{"role":"user","content":"Gr\xc3\xbc\xc3\x9fe \xe2\x82\xac \xf0\x9f\x98\x80"},'
        b'{"role":"assistant","content":"\\u00e9\\n\\ud83d\\ude00"},'
        b'{"role":"user","content":""}],"temperature":0.7,"top_p":0.9,"top_k":40,'
        b'"max_tokens":3,"stream":true,"image_token_budget":280,'
        b'"grammar":"root ::= \\"a\\" | \\"b\\"","stop":["END","\\n\\n"],"seed":42,'
        b'"progress":true,"model":"mock","keep_alive_s":5,"strict":true,"min_n_ctx":9,"describe":true}'
    ),
    (
        b'{"id":"r2","messages":[{"role":"user","content":"go on"}],"stream":false,'
        b'"temperature":null,"top_p":null,"top_k":null,"max_tokens":null,"stop":null,'
        b'"seed":null,"progress":null,"unknown":{"deep":[1,[2,[3]]]}}'
    ),
)

_V2: Final = (
    b'{"messages":[{"role":"user","content":[{"type":"text","text":"hi"}]}]}',
    (
        b'{"id":"r1","messages":[{"role":"system","content":[{"type":"text","text":""}]},'
        b'{"role":"user","content":[{"type":"text","text":"Look: \xe2\x82\xac"},'
        b'{"type":"image","attachment_id":"i1"},{"type":"audio","attachment_id":"a1"},'
        b'{"type":"video","attachment_id":"v1"}]},'
        b'{"role":"assistant","content":[{"type":"tool_use","tool_call_id":"tc-0",'
        b'"name":"f","input":{"x":[1,2.5e3,null,"\\u2028"]}}]},'
        b'{"role":"user","content":[{"type":"tool_result","tool_call_id":"tc-0",'
        b'"content":[{"type":"text","text":"4"},{"type":"image","attachment_id":"i1"}]}]}],'
        b'"attachments":[{"kind":"image","id":"i1","width":1,"height":1,"bytes":"AAAA"},'
        b'{"kind":"audio","id":"a1","sample_rate":16000,"bytes":"AAAAAA=="},'
        b'{"kind":"video","id":"v1","bytes":""}],'
        b'"tools":[{"name":"f","description":"d","input_schema":{"type":"object"}}]}'
    ),
    (
        b'{"id":"r2","messages":[{"role":"user","content":[{"type":"text","text":"go"}]}],'
        b'"temperature":0.5,"top_p":0.5,"top_k":0,"min_p":0.1,"repeat_penalty":1.1,'
        b'"presence_penalty":-1,"frequency_penalty":1,"logit_bias":{"7":-100,"9":1.5},'
        b'"seed":0,"max_tokens":3,"min_tokens":1,"stop":["x"],"stop_token_ids":[7,8],'
        b'"logprobs":2,"tool_choice":"auto","thinking":true,"stream":false,"priority":-10,'
        b'"deadline_ms":60000,"cache":"off","prefill_only":false,"progress":true,'
        b'"model":"another","keep_alive_s":0,"strict":true,"min_n_ctx":1,"describe":false}'
    ),
    (
        b'{"id":"r3","messages":[{"role":"user","content":[{"type":"text","text":"go"}]},'
        b'{"role":"user","content":[{"type":"tool_result","tool_call_id":"","content":'
        b'[{"type":"tool_result","tool_call_id":"t","content":[]}]}]}],'
        b'"response_format":null,"tool_choice":null,"thinking":null,"cache":null,'
        b'"tools":[{"name":"f","description":"","input_schema":true},'
        b'{"name":"g","description":"","input_schema":{}}],"priority":null}'
    ),
    (
        b'{"id":"r4","messages":[{"role":"user","content":[{"type":"text","text":"go"}]}],'
        b'"tools":[{"name":"f","description":"","input_schema":{}}],'
        b'"tool_choice":{"name":"f"},"response_format":{"type":"json_schema","schema":{}}}'
    ),
)

_MEDIA: Final = (
    (
        b'{"id":"r5","messages":[{"role":"user","content":[{"type":"text","text":"go"},'
        b'{"type":"audio","attachment_id":"a1"}]}],'
        b'"attachments":[{"kind":"audio","id":"a1","sample_rate":16000,"open":true}],'
        b'"language":"auto","translate":false,"timestamps":"word"}'
    ),
    (
        b'{"id":"r6","messages":[{"role":"user","content":[{"type":"text","text":"go"},'
        b'{"type":"image","attachment_id":"i1"},{"type":"audio","attachment_id":"a1"}]}],'
        b'"attachments":[{"kind":"image","id":"i1","width":1,"height":1,"fd":0},'
        b'{"kind":"audio","id":"a1","sample_rate":16000,"fd":1,"bytes":null}]}'
    ),
)

_EMBED: Final = (
    b'{"input":["hi"]}',
    (
        b'{"id":"r1","input":["one","zwei \xe2\x82\xac","\\u0033"],"dimensions":4,'
        b'"task":"retrieval_query","model":"mock","keep_alive_s":5,"strict":true,"min_n_ctx":9,"describe":true}'
    ),
    b'{"id":"r2","input":["one"],"dimensions":null,"task":null,"more":{}}',
    b'{"id":"r3","tokens":[[1,22,4294967295],[0]],"dimensions":4,"task":null}',
)

_RERANK: Final = (
    b'{"query":"q","documents":["a"]}',
    (
        b'{"id":"r1","query":"what is \xe2\x82\xac","documents":["a","b what is","c"],'
        b'"top_n":2,"model":"mock","keep_alive_s":5,"strict":true,"min_n_ctx":9,"describe":true}'
    ),
    b'{"id":"r2","query":"q","documents":["a","b"],"top_n":null,"more":[]}',
)

_ADMIN: Final = (
    b'{"command":"requests"}',
    b'{"command":"metrics"}',
    b'{"command":"backends"}',
    b'{"command":"cancel","id":"r1"}',
    b'{"command":"cancel","id":null}',
    b'{"command":"drain"}',
)

SEEDS: Final[Mapping[SurfaceName, Sequence[bytes]]] = {
    "v1": (*_V1, *_CANCELS),
    "v2": (*_V2, *_MEDIA, *_APPENDS, *_CANCELS),
    "embed": (*_EMBED, *_CANCELS),
    "rerank": (*_RERANK, *_CANCELS),
    "admin": _ADMIN,
}

CLEAN: Final[Mapping[SurfaceName, bytes]] = {
    name: lines[0] for name, lines in SEEDS.items()
}
"""The shortest request of each surface that is answered in full."""
