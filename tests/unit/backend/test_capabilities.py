from inferd.backend.capabilities import (
    AcceleratorInfo,
    AcceleratorKind,
    BackendCapabilities,
)


def test_a_backend_writes_text_and_no_more_unless_it_says_so():
    able = BackendCapabilities()
    assert able.generate
    others = (able.v2, able.vision, able.audio, able.video, able.tools, able.thinking)
    assert not any((*others, able.embed, able.rerank, able.n_ctx, able.n_embd))
    assert able.accelerator == AcceleratorInfo(kind=AcceleratorKind.CPU, gpu_layers=0)
