"""What a request demands of its answer, and whether an answer that is over has it.

A grammar holds local models to it while they write. Engines elsewhere are told of it, and some
of them write as they like all the same.
"""

from collections.abc import Collection

from inferd.backend.job import GenerateJob
from inferd.ipc.worker import Ended


def is_cut(end: Ended) -> bool:
    """Tell whether ``max_tokens`` or a stop token ended an answer."""
    return end.stop_reason != "end" or end.stop_token_id is not None


def unmet_demand(job: GenerateJob, end: Ended, called: Collection[str]) -> str:
    """Tell what an answer lacks that nothing cut short.

    Args:
        job: that was answered.
        end: of the answer; what stop strings end is cut short, and has none.
        called: the names of the tools that the answer calls.

    Returns:
        A text for the client, which begins with the field of the request; empty if the answer
        has what was demanded, or was cut short.
    """
    if is_cut(end) or not job.tells_structure:
        return ""
    if job.tool_choice.is_forced:
        return _unmet_call(job, called)
    if job.structure is not None and end.structure_complete is False and not called:
        return (
            f"{job.structure.field}: the answer ended without the structure that was "
            "demanded, to which its engine does not hold answers"
        )
    return ""


def _unmet_call(job: GenerateJob, called: Collection[str]) -> str:
    if not called:
        return (
            "tool_choice: the answer ended without the call that was demanded, which its "
            "engine does not enforce"
        )
    choice = job.tool_choice
    allowed = {each.name for each in job.tools}
    if not allowed.issuperset(called):
        return "tool_choice: the answer calls a tool that is not one of the request's"
    if choice.kind == "named" and {*called} != {choice.name}:
        return (
            "tool_choice: the answer calls another tool than the one that was demanded"
        )
    return ""
