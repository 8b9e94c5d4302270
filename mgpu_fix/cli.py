"""The command line: options and their help. What a command does is in ``commands``, which is imported when it runs."""

import enum
import functools
import inspect
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from mgpu_fix import __version__, config
from mgpu_fix.console import Output, UsageError
from mgpu_fix.levels import VerifiedBy

if TYPE_CHECKING:
    from mgpu_fix.observe import Observer, Program

app = typer.Typer(
    name="mgpu-fix",
    help="Repair JAX Pallas kernels for NVIDIA GPUs (Mosaic GPU), and prove every repair by running it.",
    no_args_is_help=True,
    add_completion=False,
    # Rich help costs more CPU than the rest of --help together.
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)

goldens = typer.Typer(
    help="Keep the numbers of healthy kernels, and hold later runs against them.",
    no_args_is_help=True,
    rich_markup_mode=None,
)
app.add_typer(goldens, name="golden")

#: what typer makes of an interrupt; no command of ours returns it
_TYPER_INTERRUPTED = 130
#: an observer that was started before the options were parsed
_early: "Observer | None" = None


class Format(enum.StrEnum):
    """Report formats."""

    TEXT = "text"
    JSON = "json"
    SARIF = "sarif"
    GITHUB = "github"
    RDJSON = "rdjson"


class Device(enum.StrEnum):
    """Where fixed kernels run, besides the interpreter."""

    AUTO = "auto"
    CPU = "cpu"
    GPU = "gpu"


class Colour(enum.StrEnum):
    """When to colour the report."""

    AUTO = "auto"
    ALWAYS = "always"
    NEVER = "never"


Files = Annotated[
    list[str],
    typer.Argument(
        metavar="FILE...", help="Python files and notebooks; only these are edited. Each is run as a script."
    ),
]
Run = Annotated[
    str | None, typer.Option("--run", metavar="CMD", help="Run this once instead: 'pytest ...' or 'python ...'.")
]
Module = Annotated[
    str | None, typer.Option("-m", metavar="MOD", help="Short for --run 'python -m MOD'; MOD may have arguments.")
]
Select = Annotated[str, typer.Option(metavar="CODES", help="Only these rules, by code or name, with commas between.")]
Ignore = Annotated[str, typer.Option(metavar="CODES", help="Not these rules, by code or name, with commas between.")]
Call = Annotated[str, typer.Option(metavar="NAME", help="Call this module-level function once the file has run.")]
Arg = Annotated[list[str], typer.Option(metavar="TYPE", help="An argument of --call: f32[128,128], bf16[64], ...")]
Timeout = Annotated[float, typer.Option(help="Seconds that a run may take beyond the first one.", min=1)]
Budget = Annotated[float, typer.Option(help="Seconds that the interpreter may spend on each kernel.", min=0)]
Arch = Annotated[str, typer.Option(metavar="GPU", help="Lower and compile for sm_90a (Hopper) or sm_100a (Blackwell).")]
Where = Annotated[Device, typer.Option("--device", help="Whether fixed kernels run on a GPU of this machine, too.")]
Caught = Annotated[bool, typer.Option("--include-caught", help="Fix errors too that the program itself catches.")]
Cold = Annotated[bool, typer.Option("--cold", help="Start a fresh process for every run.")]
Target = Annotated[
    list[str],
    typer.Option(metavar="GLOB=CMD", help="What to --run for files of that name, where nothing else is said."),
]
Reference = Annotated[
    str,
    typer.Option(metavar="MOD:FN", help="A function that computes the same; also FILE.py:FN, or FN of the program."),
]
Rtol = Annotated[float | None, typer.Option(help="Relative tolerance, else one for each dtype.", min=0)]
Atol = Annotated[float | None, typer.Option(help="Absolute tolerance, else one for each dtype.", min=0)]
GoldenFolder = Annotated[
    str, typer.Option("--golden", metavar="DIR", help="Folder of golden files, else golden/ beside each file.")
]
OraclePython = Annotated[
    str, typer.Option(metavar="PATH", help="Another Python, with a newer JAX, whose interpreter gives the numbers.")
]
Interactive = Annotated[bool, typer.Option("--interactive", "-i", help="Show each fix, and ask before it is made.")]
Diff = Annotated[bool, typer.Option("--diff", help="Print a patch for git apply; write nothing.")]
CheckOnly = Annotated[bool, typer.Option("--check", help="Write and print nothing; exit 1 on a change.")]
From = Annotated[str, typer.Option("--from", metavar="V", help="The JAX that the code was written for.")]
To = Annotated[str, typer.Option("--to", metavar="V", help="The JAX to bring it to, else the one installed.")]
OutputFormat = Annotated[Format, typer.Option(help="Report format.")]
OutputFile = Annotated[str, typer.Option(metavar="FILE", help="Write the report there, not to the terminal.")]
Color = Annotated[Colour, typer.Option("--color", help="Colour the report.")]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Say nothing but what blocks a file.")]
Verbose = Annotated[bool, typer.Option("--verbose", "-v", help="Show the program's output and every proof.")]


@dataclass(frozen=True)
class Runs:
    """How programs are run, as it stands on the command line."""

    run: str | None
    module: str | None
    call: str
    args: tuple[str, ...]
    targets: tuple[str, ...]
    rest: dict[str, Any]

    @property
    def asked(self) -> bool:
        """Whether anything says what to run."""
        return self.run is not None or self.module is not None or bool(self.call or self.args)

    def program(self) -> "Program":
        """As the commands take it. Raises UsageError."""
        from mgpu_fix import commands

        return commands.program(self.run, self.module, self.call, self.args, **self.rest)

    def programs(self, files: Sequence[str]) -> "list[tuple[tuple[str, ...], Program]]":
        """The files, in groups that are run by the same program. Raises UsageError."""
        from mgpu_fix import commands

        groups: dict[str, list[str]] = {}
        for name in files:
            groups.setdefault("" if self.asked else config.target(name, self.targets), []).append(name)
        return [
            (tuple(group), commands.program(command, None, "", (), **self.rest) if command else self.program())
            for command, group in groups.items()
        ]


def _runs(
    run_: Run = None,
    module: Module = None,
    call: Call = "",
    arg: Arg = [],  # noqa: B006 (typer reads the default)
    target: Target = [],  # noqa: B006
    reference: Reference = "",
    rtol: Rtol = None,
    atol: Atol = None,
    timeout: Timeout = 60.0,
    interpret_budget: Budget = 20.0,
    arch: Arch = "",
    device: Where = Device.AUTO,
    include_caught: Caught = False,
    cold: Cold = False,
) -> Runs:
    rest = {
        "timeout": timeout,
        "budget": interpret_budget,
        "arch": arch,
        "device": device.value,
        "include_caught": include_caught,
        "cold": cold,
        "reference": reference,
        "rtol": rtol,
        "atol": atol,
    }
    return Runs(run_, module, call, tuple(arg), tuple(target), rest)


def _output(
    output_format: OutputFormat = Format.TEXT,
    output_file: OutputFile = "",
    color: Color = Colour.AUTO,
    quiet: Quiet = False,
    verbose: Verbose = False,
) -> Output:
    return Output(output_format.value, color.value, False, quiet, verbose, output_file)


def _sharing(**groups: Callable[..., Any]) -> Callable[[Callable[..., int]], Callable[..., int]]:
    """Give a command options that others have, too: what a group makes of its options is the argument of that name."""

    def decorate(command: Callable[..., int]) -> Callable[..., int]:
        own = inspect.signature(command)
        shared = {name: inspect.signature(make).parameters for name, make in groups.items()}

        @functools.wraps(command)
        def run(**given: Any) -> int:
            made = {name: groups[name](**{p: given.pop(p) for p in options}) for name, options in shared.items()}
            return command(**given, **made)

        parameters = [p for p in own.parameters.values() if p.name not in groups]
        parameters += [p for options in shared.values() for p in options.values()]
        # typer reads both.
        run.__signature__ = own.replace(parameters=parameters)  # type: ignore[attr-defined]
        run.__annotations__ = {p.name: p.annotation for p in parameters}
        return run

    return decorate


@app.command()
@_sharing(runs=_runs, output=_output)
def apply(
    files: Files,
    runs: Runs,
    output: Output,
    diff: Diff = False,
    check_only: CheckOnly = False,
    interactive: Interactive = False,
    unsafe_fixes: Annotated[
        bool, typer.Option("--unsafe-fixes", help="Also apply fixes that may change what a kernel computes.")
    ] = False,
    select: Select = "",
    ignore: Ignore = "",
    require: Annotated[VerifiedBy, typer.Option(help="Write only fixes proven at least this well.")] = (
        VerifiedBy.LOWERED
    ),
    prefer: Annotated[
        str,
        typer.Option(
            metavar="NAME", help="Try the fix of this name first; fastest: the one that takes a GPU the least time."
        ),
    ] = "",
    max_iterations: Annotated[int, typer.Option(help="Rounds without progress before giving up.", min=1)] = 8,
    golden: GoldenFolder = "",
    update_golden: Annotated[
        bool, typer.Option("--update-golden", help="Take the numbers as they are now for the golden file.")
    ] = False,
    oracle_python: OraclePython = "",
) -> int:
    """Repair kernels in place. A file is written only with fixes that a run proved."""
    from mgpu_fix import commands
    from mgpu_fix.problems import Options
    from mgpu_fix.repair import Task

    options = Options(commands.codes(select), commands.codes(ignore), unsafe_fixes, require, prefer, max_iterations)
    output = _preview(output, diff, check_only, interactive)
    mode = "preview" if diff or check_only else "apply"
    tasks = [Task(f, mode, options, p, goldens=golden, renew=update_golden) for f, p in runs.programs(files)]
    return commands.repair(tasks, output, _early, oracle_python, interactive)


@app.command()
@_sharing(runs=_runs, output=_output)
def check(
    files: Files,
    runs: Runs,
    output: Output,
    select: Select = "",
    ignore: Ignore = "",
    golden: GoldenFolder = "",
    oracle_python: OraclePython = "",
    emit_repro: Annotated[
        str, typer.Option(metavar="FILE", help="Write a script that raises the first error and does nothing else.")
    ] = "",
) -> int:
    """Run the files once and say what fails and which rule knows it. Changes nothing."""
    from mgpu_fix import commands
    from mgpu_fix.problems import Options
    from mgpu_fix.repair import Task

    options = Options(commands.codes(select), commands.codes(ignore))
    tasks = [
        Task(group, "check", options, program, goldens=golden, reproducer=emit_repro)
        for group, program in runs.programs(files)
    ]
    return commands.repair(tasks, output, _early, oracle_python)


@goldens.command()
@_sharing(runs=_runs, output=_output)
def record(
    files: Files, runs: Runs, output: Output, golden: GoldenFolder = "", oracle_python: OraclePython = ""
) -> int:
    """Run healthy files and keep the numbers of each kernel call, in golden/ beside each file."""
    return _golden("record", files, runs, output, golden, oracle_python)


@goldens.command()
@_sharing(runs=_runs, output=_output)
def verify(
    files: Files, runs: Runs, output: Output, golden: GoldenFolder = "", oracle_python: OraclePython = ""
) -> int:
    """Run the files and hold the numbers of each kernel call against their goldens. Changes nothing."""
    return _golden("verify", files, runs, output, golden, oracle_python)


def _golden(mode: str, files: list[str], runs: Runs, output: Output, folder: str, oracle_python: str) -> int:
    from mgpu_fix import commands
    from mgpu_fix.repair import Task

    tasks = [Task(group, mode, program=program, goldens=folder) for group, program in runs.programs(files)]
    return commands.repair(tasks, output, _early, oracle_python)


@app.command()
@_sharing(runs=_runs, output=_output)
def upgrade(
    paths: Annotated[
        list[str], typer.Argument(metavar="PATH...", help="Python files, notebooks, Markdown, and folders.")
    ],
    runs: Runs,
    output: Output,
    since: From = "",
    to: To = "",
    diff: Diff = False,
    check_only: CheckOnly = False,
    interactive: Interactive = False,
    unsafe_fixes: Annotated[
        bool, typer.Option("--unsafe-fixes", help="Also make changes that may not mean the same.")
    ] = False,
    select: Select = "",
    ignore: Ignore = "",
    jobs: Annotated[int, typer.Option(help="Processes that share the files out, else one for each core.", min=0)] = 0,
) -> int:
    """Bring code to a newer version of JAX. That runs nothing, and proves nothing, without --run, -m or --call."""
    from mgpu_fix import upgrading

    output = _preview(output, diff, check_only, interactive)
    chosen = upgrading.Chosen(since, to, select, ignore, unsafe_fixes, jobs, interactive)
    program = runs.program() if runs.asked else None
    return upgrading.upgrade(tuple(paths), chosen, output, not (diff or check_only), program)


def _preview(output: Output, diff: bool, check_only: bool, interactive: bool) -> Output:
    """How a report is told where --diff or --check may be given. Raises UsageError."""
    if diff and check_only:
        raise UsageError("--diff and --check exclude each other: one prints the patch, the other nothing")
    if interactive and check_only:
        raise UsageError("--interactive and --check exclude each other: one asks, the other says nothing")
    return replace(output, patch=diff, quiet=output.quiet or (check_only and not output.file))


@app.command()
def explain(
    query: Annotated[str, typer.Argument(help="A rule's code or name, or an error; else standard input.")] = "",
    as_json: Annotated[bool, typer.Option("--json", help="As JSON.")] = False,
) -> int:
    """Say what an error means, why it happens and how it is fixed."""
    from mgpu_fix import commands

    return commands.explain(query, as_json)


@app.command()
def rules(as_json: Annotated[bool, typer.Option("--json", help="As JSON.")] = False) -> int:
    """List the catalogue."""
    from mgpu_fix import commands

    return commands.rules(as_json)


@app.command()
def lsp() -> int:
    """Serve an editor over standard input and output; docs/editors.md shows how to set it up."""
    from mgpu_fix import commands

    return commands.serve()


@app.command()
def doctor() -> int:
    """Say what this machine can prove."""
    from mgpu_fix import commands

    return commands.doctor(_early)


def _version(show: bool) -> None:
    if show:
        typer.echo(f"mgpu-fix {__version__}")
        raise typer.Exit


@app.callback()
def _main(
    version: Annotated[bool, typer.Option("--version", callback=_version, is_eager=True, help="Show it.")] = False,
) -> None:
    pass


def run(early: "Observer | None" = None) -> int:
    """The whole command; ``early`` is an observer that was started beforehand. Returns the exit code.

    Raises KeyboardInterrupt where it is interrupted.
    """
    global _early
    _early = early
    try:
        result = app(standalone_mode=False, default_map=_configured())
        if result == _TYPER_INTERRUPTED:
            raise KeyboardInterrupt
        return result if isinstance(result, int) else 0
    except typer.Exit as e:
        return e.exit_code
    except typer.Abort:
        raise KeyboardInterrupt from None
    except Exception as e:
        return _failed(e)


#: what to do, and to what, no file says
_ASKED = {
    *("files", "paths", "query", "as_json", "diff", "check_only", "update_golden", "since", "to", "jobs", "emit_repro"),
    "interactive",
    *("run_", "module", "call", "arg"),
}


def _configured() -> dict[str, Any]:
    """Defaults of each command's options, from pyproject.toml. Raises UsageError."""
    file = None if {"--help", "-h"} & {*sys.argv} else config.find(Path.cwd())
    if file is None:
        return {}
    functions = [c.callback for c in (*app.registered_commands, *goldens.registered_commands) if c.callback]
    takes = {f.__name__: {*inspect.signature(f).parameters} - _ASKED for f in functions}
    given = config.options(file, set().union(*takes.values()))
    found = {name: {o: value for o, value in given.items() if o in options} for name, options in takes.items()}
    return {**found, "golden": found}


def _failed(error: Exception) -> int:
    # Only loaded modules can have raised what they define.
    from mgpu_fix import commands

    if isinstance(error, commands.ERRORS):
        typer.echo(f"mgpu-fix: {error}", err=True)
        return 2
    # Usage errors that the parser found know how to show themselves.
    show = getattr(error, "show", None)
    if show is None:
        raise error
    show()
    return 2
