import pytest, trio
from inferd.limits import MAX_FRAME_BYTES
from tests.fakes.backend import ScriptedBackend
from tests.fakes.serving import House

@pytest.mark.parametrize("leaf,head,tail",[
 ("infer.v2.sock", b'{"messages":[{"role":"user","content":[{"type":"text","text":""}]}],"cache":"', b'"}'),
 ("infer.v2.sock", b'{"messages":[],"id":"', b'"}'),
 ("infer.sock", b'{"messages":[{"content":"","role":"', b'"}]}'),
 ("infer.sock", b'{"messages":[{"role":"user","content":"x"}],"id":"', b'"}'),
 ("infer.embed.sock", b'{"input":["x"],"id":"', b'"}'),
])
async def test_x(autojump_clock, leaf, head, tail):
    async with House(ScriptedBackend()).opened() as house, house.connect(leaf) as c:
        n = MAX_FRAME_BYTES - len(head) - len(tail)
        async with trio.open_nursery() as n_:
            n_.start_soon(c.send, head + b"x"*n + tail + b"\n")
            f = await c.answer()
        print(leaf, [str(x)[:200] for x in f])
        f = await c.ask("next")
        print(leaf, [str(x)[:200] for x in f])
