"""Requests that follow from the description of the routes, and others that contradict it."""

from collections import Counter
from typing import Final

from proofs.drawn import send_drawn
from tests.daemon.bridge import bridge_to, helper_of
from tests.daemon.configuration import mock
from tests.daemon.fixtures import daemons
from torture.outcome import Context

KEY: Final = "described-routes"
NAME: Final = "Requests drawn from /openapi.json, and from what it forbids"
EXCLUDED: Final = "positive_data_acceptance"
"""The check that what fits a schema is accepted: fields may contradict each other, and no
schema says so."""
COMMANDS: Final = ["list", "remove", "status", "load", "unload", "reload", "pull"]
"""What the helper may do; it has no source to pull from."""


def run(context: Context) -> None:
    """Send requests that the description allows, and some that it does not."""
    n_examples = context.pick(short=3, full=100)
    phases = context.pick(short="fuzzing", full="coverage,fuzzing")
    with daemons() as make:
        daemon = make(
            {
                "backend": [mock(tokens=["Hel", "lo"])],
                "admission": {"max_queued": 100},
                "bridge_helper": {"allow": COMMANDS},
            }
        ).start()
        with helper_of(daemon), bridge_to(daemon) as bridge:
            report = send_drawn(
                f"{bridge.address}/openapi.json",
                ["--phases", phases, "--exclude-checks", EXCLUDED],
                n_examples=n_examples,
                seed=context.seed,
            )
            told = bridge.logged("http_request.done")
            bugs = bridge.logged("http_request.failed")
    answers = Counter(str(each.get("status")) for each in told)
    for failure in report.failures:
        where = ", ".join(failure.operations)
        context.problems.append(f"{failure.title}: {where}")
    untested = report.operations.selected - report.operations.tested
    context.require(not untested, f"{untested} routes were not tested")
    context.require(not bugs, f"bugs: {bugs[:1]}")
    context.counts |= {
        "routes": report.operations.tested,
        "requests": report.test_cases.generated,
        "failures": len(report.failures),
        **{f"status_{status}": number for status, number in sorted(answers.items())},
    }
    context.notes.append(
        f"schemathesis {report.schemathesis_version}, all checks but `{EXCLUDED}`: "
        "fields may contradict each other, and no schema says so; "
        "a helper does what `/admin/` asks for the bridge's own user"
    )
