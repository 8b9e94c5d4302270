"""The command line: options and their help. What a command does is in ``commands``, which is imported when it runs."""

import enum
from typing import TYPE_CHECKING, Annotated

import typer

from mgpu_fix import __version__
from mgpu_fix.console import Output, UsageError
from mgpu_fix.levels import VerifiedBy

if TYPE_CHECKING:
    from mgpu_fix.observe import Observer

app = typer.Typer(
    name="mgpu-fix",
    help="Repair JAX Pallas kernels for NVIDIA GPUs (Mosaic GPU), and prove every repair by running it.",
    no_args_is_help=True,
    add_completion=False,
    # Rich help costs more CPU than the rest of --help together.
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)

#: what typer makes of an interrupt; no command of ours returns it
_TYPER_INTERRUPTED = 130
#: an observer that was started before the options were parsed
_early: "Observer | None" = None


class Format(enum.StrEnum):
    """Report formats."""

    TEXT = "text"
    JSON = "json"


class Colour(enum.StrEnum):
    """When to colour the report."""

    AUTO = "auto"
    ALWAYS = "always"
    NEVER = "never"


Files = Annotated[
    list[str], typer.Argument(metavar="FILE...", help="Python files; only these are edited. Each is run as a script.")
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
Caught = Annotated[bool, typer.Option("--include-caught", help="Fix errors too that the program itself catches.")]
Cold = Annotated[bool, typer.Option("--cold", help="Start a fresh process for every run.")]
From = Annotated[str, typer.Option("--from", metavar="V", help="The JAX that the code was written for.")]
To = Annotated[str, typer.Option("--to", metavar="V", help="The JAX to bring it to, else the one installed.")]
OutputFormat = Annotated[Format, typer.Option(help="Report format.")]
Color = Annotated[Colour, typer.Option("--color", help="Colour the report.")]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Say nothing but what blocks a file.")]
Verbose = Annotated[bool, typer.Option("--verbose", "-v", help="Show the program's output and every proof.")]


@app.command()
def apply(
    files: Files,
    diff: Annotated[bool, typer.Option("--diff", help="Print a patch for git apply; write nothing.")] = False,
    check_only: Annotated[bool, typer.Option("--check", help="Write and print nothing; exit 1 on a change.")] = False,
    unsafe_fixes: Annotated[
        bool, typer.Option("--unsafe-fixes", help="Also apply fixes that may change what a kernel computes.")
    ] = False,
    select: Select = "",
    ignore: Ignore = "",
    require: Annotated[VerifiedBy, typer.Option(help="Write only fixes proven at least this well.")] = (
        VerifiedBy.LOWERED
    ),
    prefer: Annotated[str, typer.Option(metavar="NAME", help="Try the fix of this name first.")] = "",
    max_iterations: Annotated[int, typer.Option(help="Rounds without progress before giving up.", min=1)] = 8,
    run_: Run = None,
    module: Module = None,
    call: Call = "",
    arg: Arg = [],  # noqa: B006 (typer reads the default)
    timeout: Timeout = 60.0,
    interpret_budget: Budget = 20.0,
    arch: Arch = "",
    include_caught: Caught = False,
    cold: Cold = False,
    output_format: OutputFormat = Format.TEXT,
    color: Color = Colour.AUTO,
    quiet: Quiet = False,
    verbose: Verbose = False,
) -> int:
    """Repair kernels in place. A file is written only with fixes that a run proved."""
    from mgpu_fix import commands
    from mgpu_fix.engine import Options
    from mgpu_fix.repair import Task

    options = Options(commands.codes(select), commands.codes(ignore), unsafe_fixes, require, prefer, max_iterations)
    if diff and check_only:
        raise UsageError("--diff and --check exclude each other: one prints the patch, the other nothing")
    program = commands.program(run_, module, call, arg, timeout, interpret_budget, arch, include_caught, cold)
    task = Task(tuple(files), "preview" if diff or check_only else "apply", options, program)
    output = Output(output_format.value, color.value, diff, quiet or check_only, verbose)
    return commands.repair(task, output, _early)


@app.command()
def check(
    files: Files,
    select: Select = "",
    ignore: Ignore = "",
    run_: Run = None,
    module: Module = None,
    call: Call = "",
    arg: Arg = [],  # noqa: B006
    timeout: Timeout = 60.0,
    interpret_budget: Budget = 20.0,
    arch: Arch = "",
    include_caught: Caught = False,
    cold: Cold = False,
    output_format: OutputFormat = Format.TEXT,
    color: Color = Colour.AUTO,
    quiet: Quiet = False,
    verbose: Verbose = False,
) -> int:
    """Run the files once and say what fails and which rule knows it. Changes nothing."""
    from mgpu_fix import commands
    from mgpu_fix.engine import Options
    from mgpu_fix.repair import Task

    options = Options(commands.codes(select), commands.codes(ignore))
    program = commands.program(run_, module, call, arg, timeout, interpret_budget, arch, include_caught, cold)
    output = Output(output_format.value, color.value, quiet=quiet, verbose=verbose)
    return commands.repair(Task(tuple(files), "check", options, program), output, _early)


@app.command()
def upgrade(
    paths: Annotated[list[str], typer.Argument(metavar="PATH...", help="Python files, and folders of them.")],
    since: From = "",
    to: To = "",
    diff: Annotated[bool, typer.Option("--diff", help="Print a patch for git apply; write nothing.")] = False,
    check_only: Annotated[bool, typer.Option("--check", help="Write and print nothing; exit 1 on a change.")] = False,
    unsafe_fixes: Annotated[
        bool, typer.Option("--unsafe-fixes", help="Also make changes that may not mean the same.")
    ] = False,
    select: Select = "",
    ignore: Ignore = "",
    jobs: Annotated[int, typer.Option(help="Processes that share the files out, else one for each core.", min=0)] = 0,
    run_: Run = None,
    module: Module = None,
    call: Call = "",
    arg: Arg = [],  # noqa: B006
    timeout: Timeout = 60.0,
    interpret_budget: Budget = 20.0,
    arch: Arch = "",
    cold: Cold = False,
    output_format: OutputFormat = Format.TEXT,
    color: Color = Colour.AUTO,
    quiet: Quiet = False,
    verbose: Verbose = False,
) -> int:
    """Bring code to a newer version of JAX. That runs nothing, and proves nothing, without --run, -m or --call."""
    from mgpu_fix import upgrading

    if diff and check_only:
        raise UsageError("--diff and --check exclude each other: one prints the patch, the other nothing")
    output = Output(output_format.value, color.value, diff, quiet or check_only, verbose)
    chosen = upgrading.Chosen(since, to, select, ignore, unsafe_fixes, jobs)
    program = None
    if run_ is not None or module is not None or call or arg:
        from mgpu_fix import commands

        program = commands.program(run_, module, call, arg, timeout, interpret_budget, arch, False, cold)
    return upgrading.upgrade(tuple(paths), chosen, output, not (diff or check_only), program)


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
        result = app(standalone_mode=False)
        if result == _TYPER_INTERRUPTED:
            raise KeyboardInterrupt
        return result if isinstance(result, int) else 0
    except typer.Exit as e:
        return e.exit_code
    except typer.Abort:
        raise KeyboardInterrupt from None
    except Exception as e:
        return _failed(e)


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
