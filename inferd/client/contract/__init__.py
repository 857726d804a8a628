"""A contract of requests and responses in the form of a C++ engine's, for programs that have it.

``docs/python-contract.md`` lists all of it, with the test of each row. New programs take
``inferd.client.Client``, which says the same in fewer words.
"""

from inferd.client.contract.engine import InferenceEngine
from inferd.client.contract.request import ContractRequest as Request
from inferd.client.contract.response import (
    NO_TOKEN,
    CompletionReason,
    ContractResponse as Response,
    ResponseChunk,
)
from inferd.client.contract.sampling import SamplingParams

__all__ = [
    "NO_TOKEN",
    "CompletionReason",
    "InferenceEngine",
    "Request",
    "Response",
    "ResponseChunk",
    "SamplingParams",
]
