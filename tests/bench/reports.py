"""A report as a run would give it, with made-up figures."""

from bench.figures import Goal, Reading, Round, figure

GOALS = (Goal("ratio_raw", at_least=0.9), Goal("ratio_peer", at_least=2))


def some_figure(**more):
    values = [
        {"inferd": 90.0, "peer": 60.0, "raw": 100.0},
        {"inferd": 94.0, "peer": 64.0, "raw": 101.0},
    ]
    rounds = [Round(Reading(each), 0.01) for each in values]
    head = {"title": "one stream", "unit": "tokens/s", "more_is_better": True}
    return {**head, **figure(rounds, goals=GOALS), **more}


def without_peers(**more):
    rounds = [Round(Reading({"inferd": 1.5}), 0.5)]
    head = {"title": "memory", "unit": "MB", "more_is_better": False}
    reasons = {"raw": "it serves nobody"}
    return {**head, **figure(rounds, reasons=reasons), **more}


def some_report(**more):
    growth = {str(place): some_figure() for place in (1, 2, 4)}
    return {
        "began": "2026-11-21T10:00:00Z",
        "seconds": 90,
        "settings": {"rounds": 2, "growth_rounds": 1, "threads": 2, "quick": False},
        "machine": {
            "cpu": "A Chip",
            "cores": 2,
            "memory_mb": 8000,
            "system": "Linux",
            "load_average": [0.1, 0.2, 0.3],
        },
        "versions": {"inferd": "0.1.0"},
        "build_flags": {"wheel": ["-DSOME=OFF"]},
        "unavailable": ["gemma3: no registry"],
        "models": {"smol": {}},
        "commands": ["llama-bench --n-gen 128"],
        "measures": {
            "single_stream": {"smol": some_figure()},
            "rss_mb": {"none": without_peers(), "smol": without_peers()},
            "stall_ms": {"smol": {"title": "stall", "error": "it broke"}},
        },
        "growth": {"clients": {"smol": {**growth, "8": {"error": "it broke"}}}},
        **more,
    }
