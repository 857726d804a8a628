"""What a daemon might tell ``inferd top``."""

from msgspec.structs import replace

from inferd.wire.observed import ModelLoad, Overview, Percentiles, UserLoad

GIB = 1024**3
ANN = UserLoad(
    uid=1000,
    principal="ann",
    running=1,
    waiting=2,
    share=0.75,
    ended=9,
    tokens_per_second=40,
)
ROOT = UserLoad(uid=0, running=0, waiting=5, share=0.25, ended=1, tokens_per_second=2)
CHAT = ModelLoad(
    name="chat",
    state="ready",
    pid=17,
    resident_bytes=3 * GIB,
    cache_bytes=512 * 1024,
    slots=4,
    running=1,
    waiting=7,
    n_ctx=8192,
    tokens_per_second=42,
)
TIMES = Percentiles(n=10, p50=120, p95=300, p99=900)
OVERVIEW = Overview(
    version="0.1.0",
    status="ready",
    at_ns=1_700_000_000_000_000_000,
    uptime_s=7261,
    pid=42,
    resident_bytes=45_000_000,
    running=1,
    places=4,
    waiting=7,
    paused=1,
    waiting_tokens=900,
    connections=8,
    window_s=60,
    ended=10,
    failed=1,
    input_tokens=1000,
    cached_tokens=250,
    tokens_per_second=42,
    first_token_ms=TIMES,
    waiting_ms=TIMES,
    total_ms=replace(TIMES, p99=1500),
    memory_budget_bytes=8 * GIB,
    memory_needed_bytes=4 * GIB,
    memory_available_bytes=2 * GIB,
    users=[ANN, ROOT],
    models=[CHAT],
)
