"""Jobs for the tests of remote engines."""

import msgspec

from inferd.backend.job import GenerateJob, Sampling, ToolSpec, Turn
from inferd.config.kinds.openai import OpenAiSettings

SAMPLING = Sampling(temperature=None, top_p=None, top_k=None, seed=1)
TOOL = ToolSpec(name="add", description="Adds.", input_schema='{"type":"object"}')


def settings(**fields) -> OpenAiSettings:
    required = {"name": "r", "base_url": "https://example.org", "model": "m"}
    return OpenAiSettings(**{**required, **fields})


def job(**fields) -> GenerateJob:
    base = GenerateJob(turns=[Turn("user", "hi")], max_tokens=9, sampling=SAMPLING)
    return msgspec.structs.replace(base, **fields)


def sampling(**fields) -> Sampling:
    return msgspec.structs.replace(SAMPLING, **fields)
