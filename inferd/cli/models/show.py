"""inferd model show: what a model is, and what it can do on this machine."""

import argparse
from pathlib import Path

import msgspec

from inferd.cli.console import EXIT_NOT_READY, EXIT_OK
from inferd.cli.models.opening import size
from inferd.cli.models.shown import ShownModel, model_to_show
from inferd.config.kinds.registry import KINDS
from inferd.config.load import load_config
from inferd.config.settings import BackendSettings, Config, ConfigError
from inferd.dialects.registry import dialect_of, has_format
from inferd.doctor.fit import Fit, fit_alone
from inferd.doctor.speed import Speed, speed_here
from inferd.memory.available import available_bytes
from inferd.memory.plan import mib
from inferd.models.facts.model import ModelFacts
from inferd.models.facts.read import ReadModel, read_model
from inferd.models.file_error import ModelFileError
from inferd.models.found.catalogue import PROGRAMS
from inferd.terminal import json_safe, print_json, print_line, print_stderr

_BILLION = 10**9
_MILLION = 10**6
_TEN = 10
_WIDTH = 12
"""Characters of the longest title."""


class ModelReport(msgspec.Struct, kw_only=True):
    """What is added to the model in the output of ``inferd model show --json``."""

    facts: ModelFacts | None = None
    """``None`` if its files cannot be read; ``error`` says why."""
    error: str = ""
    template_family: str | None = None
    """The dialect of its prompts, if it generates text."""
    has_template: bool | None = None
    """Whether it has a chat template, if it generates text. Without one it is served only if
    ``chat_template`` in its ``[[backend]]`` names the family."""
    here: Fit | None = None
    """``None`` with ``--header-only``, and for files that are no model by themselves."""
    speed: Speed | None = None
    """An upper bound by memory alone, if it generates text."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options."""
    parser.add_argument(
        "name",
        metavar="NAME",
        help="a model's name in the store, the path of a file, or embedded:NAME",
    )
    parser.add_argument(
        "--from",
        dest="program",
        choices=tuple(PROGRAMS),
        help="NAME is a model that this program has, as import --dry-run lists it",
    )
    parser.add_argument(
        "--header-only",
        action="store_true",
        help="read the files' headers alone: do not ask a worker what the model needs",
    )
    parser.add_argument(
        "--config",
        type=Path,
        metavar="FILE",
        help="the TOML configuration whose memory budget counts",
    )
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.epilog = (
        "Exit 1 if the files cannot be read as a model. What fits is what the daemon "
        "would plan for this model alone, in the memory that is free now; the speed is "
        "an upper bound by how fast memory is read."
    )


def run(arguments: argparse.Namespace) -> int:
    """Print what a model is; exit 1 if its files cannot be read."""
    model = model_to_show(arguments.name, arguments.program)
    report = ModelReport()
    try:
        read = read_model(model.paths("model"))
    except ModelFileError as error:
        report.error = str(error)
    else:
        report = _report(
            model,
            read,
            None if arguments.header_only else _config(arguments.config),
        )
    if arguments.json:
        fields = msgspec.to_builtins(model) | msgspec.to_builtins(report)
        print_json(json_safe(msgspec.json.encode(_plain(fields)).decode()))
    else:
        for title, value in _lines(model, report):
            print_line(f"{title:<{_WIDTH}} {value}")
        if report.error:
            print_stderr(f"error: {report.error}")
    return EXIT_NOT_READY if report.error else EXIT_OK


def _plain(value: object) -> object:
    """Escape the bytes of paths that are not UTF-8."""
    match value:
        case str():
            return json_safe(value)
        case dict():
            return {key: _plain(each) for key, each in value.items()}
        case list() | tuple():
            return [_plain(each) for each in value]
        case _:
            return value


def _config(file: Path | None) -> Config:
    """Read the configuration; without one that can be used, take the defaults."""
    try:
        return load_config(file)
    except ConfigError as error:
        print_stderr(f"note: {error}; memory is planned with the defaults")
        return Config()


def _report(model: ShownModel, read: ReadModel, config: Config | None) -> ModelReport:
    """Gather what is known; without a configuration, from the headers alone."""
    facts = read.facts
    report = ModelReport(facts=facts)
    if facts.use == "generate":
        dialect = dialect_of(facts.architecture, read.chat_template)
        report.template_family = dialect.name
        report.has_template = has_format(read.chat_template)
    if facts.token_bytes:
        report.speed = speed_here(facts.token_bytes, available_bytes())
    if config is not None and facts.use != "project":
        report.here = fit_alone(_settings(model, facts), config)
    return report


def _settings(model: ShownModel, facts: ModelFacts) -> BackendSettings:
    """Make the settings of a backend that serves the model with all defaults."""
    [kind] = [kind for kind in KINDS.kinds if kind.name == facts.kind]
    fields: dict[str, object] = {"name": "model", "model": model.reference}
    if projectors := model.paths("projector"):
        fields["mmproj"] = str(projectors[0])
    return msgspec.convert(fields | {"kind": facts.kind}, kind.settings)


# --- the table ------------------------------------------------------------------------


def _lines(model: ShownModel, report: ModelReport) -> list[tuple[str, str]]:
    facts = report.facts
    license_ = model.license or (facts.license if facts else "")
    lines = [
        ("name", model.name),
        ("source", model.source),
        ("revision", model.revision),
        ("licence", license_ or "not known"),
        ("since", model.created),
        ("size", size(sum(file.n_bytes for file in model.files))),
    ]
    if facts is not None:
        family = report.template_family or ""
        if report.has_template is False:
            family += (
                " by its architecture; the file has no template, so its [[backend]] "
            )
            family += f'needs chat_template = "{report.template_family}"'
        lines += _fact_lines(facts, family)
    if facts is not None and report.here is not None:
        fit = _fit_text(report.here, has_tokens=facts.use != "transcribe")
        lines.append(("here", fit))
    if report.speed is not None:
        lines.append(("speed", _speed_text(report.speed)))
    for file in model.files:
        digest = f", SHA-256 {file.sha256}" if file.sha256 else ""
        lines.append((file.role, f"{file.name}, {size(file.n_bytes)}{digest}"))
    return [(title, value) for title, value in lines if value]


def _fact_lines(facts: ModelFacts, family: str) -> list[tuple[str, str]]:
    shape = f"{facts.n_layers} layers of width {facts.n_embd}"
    experts = (
        f", {facts.n_experts_used} of {facts.n_experts} experts"
        if facts.n_experts > 1
        else ""
    )
    languages = (
        f", {facts.n_languages} languages"
        if facts.n_languages > 1
        else ", English"
        if facts.use == "transcribe"
        else ""
    )
    return [
        ("kind", facts.kind),
        ("title", facts.name),
        ("does", f"{_USES[facts.use]}{languages}"),
        ("architecture", f"{facts.architecture or 'not known'}, {shape}{experts}"),
        ("parameters", _count(facts.n_parameters)),
        ("quantisation", f"{facts.quantisation} ({_shares(facts)})"),
        ("context", f"{facts.n_ctx} tokens in training" if facts.n_ctx else ""),
        ("template", family),
    ]


_USES = {
    "generate": "generates text",
    "embed": "embeds texts",
    "rerank": "ranks documents",
    "transcribe": "transcribes speech",
    "project": "encodes pictures or audio for a model; no model by itself",
}


def _shares(facts: ModelFacts) -> str:
    """Write how much of the bytes each type of tensor has."""
    total = max(1, sum(facts.tensor_types.values()))
    shares = [
        f"{100 * n_bytes / total:.0f} % {name}"
        for name, n_bytes in facts.tensor_types.items()
        if 100 * n_bytes >= total
    ]
    return ", ".join(shares) or "no tensors"


def _count(number: int) -> str:
    """Write a number of parameters as the names of models do."""
    unit, letter = (_BILLION, "B") if number >= _BILLION else (_MILLION, "M")
    amount = number / unit
    return f"{amount:.{1 if amount < _TEN else 0}f} {letter}"


def _fit_text(fit: Fit, *, has_tokens: bool) -> str:
    """Describe what fits; a transcription has a context of its own length."""
    if not fit.fits:
        return f"does not fit, or cannot be loaded: {fit.reason}"
    slots = "1 request" if fit.n_slots == 1 else f"{fit.n_slots} requests"
    tokens = f" of {fit.n_ctx} tokens each" if has_tokens else ""
    reduced = ", reduced to fit" if fit.is_reduced else ""
    return (
        f"fits: {slots} at once{tokens}{reduced}; {mib(fit.needed_bytes)} of the "
        f"{fit.budget_bytes // 2**20} MiB that models may take now"
    )


def _speed_text(speed: Speed) -> str:
    how = "measured" if speed.bandwidth_is_measured else "assumed"
    rate = float(f"{speed.tokens_per_s:.2g}")  # no more digits than it is good for
    return (
        f"{speed.speed_class}; an estimate: at most {rate:g} tokens/s for "
        f"one request, {size(speed.token_bytes)} being read per token, at "
        f"{size(speed.bandwidth_bytes_per_s)}/s ({how})"
    )
