"""A request of each kind with every field there is, as a client may write it."""

TEXT = (
    b'{"id":"a","messages":[{"role":"system","content":""},'
    b'{"role":"user","content":"h\\u00e9"}],"temperature":0.5,"top_p":1,"top_k":0,'
    b'"max_tokens":8,"stream":false,"image_token_budget":70,"grammar":"root ::= \\"x\\"",'
    b'"stop":["\\n","b"],"seed":7,"progress":true,"model":"m","principal":"p","strict":true}'
)

CONTENT = (
    b'[{"type":"text","text":"hi"},{"type":"image","attachment_id":"i"},'
    b'{"type":"audio","attachment_id":"s"},{"type":"video","attachment_id":"v"},'
    b'{"type":"tool_use","tool_call_id":"tc-0","name":"f","input":{"x":[1.0]}},'
    b'{"type":"tool_result","tool_call_id":"tc-0","content":['
    b'{"type":"text","text":""},{"type":"image","attachment_id":"i"}]}]'
)
ATTACHMENTS = (
    b'[{"kind":"image","id":"i","width":2,"height":1,"bytes":"<base64>"},'
    b'{"kind":"audio","id":"s","sample_rate":16000,"bytes":""},'
    b'{"kind":"video","id":"v","bytes":""}]'
)
TOOLS = b'[{"name":"f","description":"F.","input_schema":{"type":"object"}}]'
BLOCKS = (
    b'{"id":"a","messages":[{"role":"user","content":' + CONTENT + b"}],"
    b'"attachments":' + ATTACHMENTS + b',"tools":' + TOOLS + b","
    b'"temperature":0.5,"top_p":1,"top_k":0,"min_p":0.1,"repeat_penalty":1,'
    b'"presence_penalty":-2,"frequency_penalty":2,"logit_bias":{"5":-100},"seed":7,'
    b'"max_tokens":8,"min_tokens":1,"stop":["b"],"stop_token_ids":[2],"logprobs":1,'
    b'"response_format":{"type":"json_schema","schema":{}},"tool_choice":{"name":"f"},'
    b'"thinking":true,"stream":false,"priority":-10,"deadline_ms":1,"cache":"off",'
    b'"prefill_only":false,"progress":true,"language":"de","translate":true,'
    b'"timestamps":"word","speech_logprobs":true,"token_ids":true,"model":"m","principal":"p","strict":true,"keep_alive_s":0.5,"min_n_ctx":9,"describe":true,"via":["v"]}'
)

EMBED = b'{"id":"a","input":["one","two"],"dimensions":4,"task":"similarity","model":"m","principal":"p","strict":true}'
RERANK = b'{"id":"a","query":"q","documents":["one","two"],"top_n":1,"model":"m","principal":"p","strict":true}'
CANCEL = b'{"type":"cancel","id":"a"}'
COMMAND = b'{"command":"cancel","id":"a"}'
APPEND = b'{"type":"append","id":"a","attachment_id":"s","bytes":"AAAAAA==","end":true}'
