"""The command line: parse, call, print."""

import enum
import os
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Annotated, NoReturn

import typer

from mgpu_fix import __version__
from mgpu_fix.catalogue import CatalogueError, Rule, load
from mgpu_fix.engine import Options
from mgpu_fix.model import Report, VerifiedBy, to_json
from mgpu_fix.observe import Observer, ObserverError, Program
from mgpu_fix.observe.run import DEVICES
from mgpu_fix.repair import Task, carry_out, exit_code
from mgpu_fix.report import json as json_report
from mgpu_fix.report.text import TextReport

app = typer.Typer(
    name="mgpu-fix",
    help="Repair JAX Pallas kernels for NVIDIA GPUs (Mosaic GPU), and prove every repair by running it.",
    no_args_is_help=True,
    add_completion=False,
    # Rich help costs more CPU than the rest of --help together.
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)

#: exit code of an interrupted run: the shell's 128 + SIGINT
INTERRUPTED = 130
_early: Observer | None = None


class Format(enum.StrEnum):
    """Report formats."""

    TEXT = "text"
    JSON = "json"


class Colour(enum.StrEnum):
    """When to colour the report."""

    AUTO = "auto"
    ALWAYS = "always"
    NEVER = "never"


Files = Annotated[list[str], typer.Argument(metavar="FILE...", help="Python files to run; only these are edited.")]
Select = Annotated[str, typer.Option(help="Only these rules, by code or name, separated by commas.")]
Ignore = Annotated[str, typer.Option(help="Not these rules, by code or name, separated by commas.")]
Call = Annotated[str, typer.Option(help="Call this module-level function once the file has run.")]
Arg = Annotated[list[str], typer.Option(help="One argument of --call, by type: f32[128,128], bf16[64].")]
Timeout = Annotated[float, typer.Option(help="Seconds that a run may take beyond the first one.", min=1)]
Budget = Annotated[float, typer.Option(help="Seconds that the interpreter may spend on each kernel.", min=0)]
Arch = Annotated[str, typer.Option(help=f"GPU to lower for: {', '.join(DEVICES)}.")]
Caught = Annotated[bool, typer.Option("--include-caught", help="Fix errors too that the program itself catches.")]
Cold = Annotated[bool, typer.Option("--cold", help="Start a fresh process for every run.")]
Output = Annotated[Format, typer.Option(help="Report format.")]
Color = Annotated[Colour, typer.Option("--color", help="Colour the report.")]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Say nothing but errors.")]
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
    prefer: Annotated[str, typer.Option(help="Try the fix of this name first where a rule has several.")] = "",
    max_iterations: Annotated[int, typer.Option(help="Rounds without progress before giving up.", min=1)] = 8,
    call: Call = "",
    arg: Arg = [],  # noqa: B006 (typer reads the default)
    timeout: Timeout = 60.0,
    interpret_budget: Budget = 20.0,
    arch: Arch = "sm_90a",
    include_caught: Caught = False,
    cold: Cold = False,
    output_format: Output = Format.TEXT,
    color: Color = Colour.AUTO,
    quiet: Quiet = False,
    verbose: Verbose = False,
) -> None:
    """Repair kernels in place. A file is written only with fixes that a run proved."""
    options = Options(_codes(select), _codes(ignore), unsafe_fixes, require, prefer, max_iterations)
    program = _program(call, arg, timeout, interpret_budget, arch, include_caught, cold)
    mode = "preview" if diff or check_only else "apply"
    report = _carry_out(Task(tuple(files), mode, options, program), quiet)
    text = TextReport(_colour(color, sys.stderr if diff else sys.stdout), mode == "apply", verbose)
    if output_format is Format.JSON:
        typer.echo(json_report.render(report), nl=False)
    elif diff:
        _write_patch(report)
        if not quiet:
            typer.echo(text.render(report, diffs=False), nl=False, err=True)
    elif not (quiet or check_only):
        typer.echo(text.render(report), nl=False)
    _complain(report, quiet or check_only)
    raise typer.Exit(exit_code(report, mode))


@app.command()
def check(
    files: Files,
    select: Select = "",
    ignore: Ignore = "",
    call: Call = "",
    arg: Arg = [],  # noqa: B006
    timeout: Timeout = 60.0,
    interpret_budget: Budget = 20.0,
    arch: Arch = "sm_90a",
    include_caught: Caught = False,
    cold: Cold = False,
    output_format: Output = Format.TEXT,
    color: Color = Colour.AUTO,
    quiet: Quiet = False,
    verbose: Verbose = False,
) -> None:
    """Run the files once and say what fails and which rule knows it. Changes nothing."""
    program = _program(call, arg, timeout, interpret_budget, arch, include_caught, cold)
    task = Task(tuple(files), "check", Options(_codes(select), _codes(ignore)), program)
    report = _carry_out(task, quiet)
    if output_format is Format.JSON:
        typer.echo(json_report.render(report), nl=False)
    elif not quiet:
        typer.echo(TextReport(_colour(color, sys.stdout), False, verbose).render(report), nl=False)
    _complain(report, quiet)
    raise typer.Exit(exit_code(report, "check"))


@app.command()
def explain(
    query: Annotated[
        str, typer.Argument(help="A rule's code or name; nothing to read an error on standard input.")
    ] = "",
    as_json: Annotated[bool, typer.Option("--json", help="As JSON.")] = False,
) -> None:
    """Say what an error means, why it happens and how it is fixed."""
    catalogue = load()
    if query:
        rule = catalogue.find(query)
        rules = [rule] if rule else catalogue.recognise(query)[:1]
    else:
        rules = catalogue.recognise(sys.stdin.read())[:1]
    if not rules:
        what = repr(query) if query else "this error"
        _fail(f"no rule knows {what}; mgpu-fix rules lists them")
    if as_json:
        typer.echo(json_report.dump(_described(rules[0])))
    else:
        rule = rules[0]
        typer.echo(f"# {rule.code} {rule.name}\n\n{rule.page}\n\nSeen on JAX {rule.jax}.")


@app.command()
def rules(as_json: Annotated[bool, typer.Option("--json", help="As JSON.")] = False) -> None:
    """List the catalogue."""
    found = sorted(load().rules, key=lambda r: r.code)
    if as_json:
        typer.echo(json_report.dump([_described(r) for r in found]))
        return
    width = max(len(r.name) for r in found)
    for rule in found:
        typer.echo(f"{rule.code}  {rule.name:{width}}  {'fix' if rule.repairs else '   '}  {rule.summary}")


@app.command()
def doctor() -> None:
    """Say what this machine can prove."""
    with _observer() as observer:
        typer.echo(f"mgpu-fix  {__version__} on Python {sys.version.split()[0]}")
        try:
            typer.echo(f"JAX       {observer.jax}")
        except ObserverError as e:
            _fail(str(e))
        typer.echo(f"rules     {len(load().rules)}, of which {sum(r.repairs for r in load().rules)} fix")
        typer.echo(f"targets   {', '.join(DEVICES)} (--arch)")
        can = observer.capabilities
        typer.echo("lowered   yes: every kernel is lowered for CUDA; no GPU is needed")
        numbers = "every kernel but inline_mgpu" if can["warps"] else "kernels without warp-level regions"
        typer.echo(f"numbers   from Pallas' GPU interpreter: {numbers}")
        if not can["warps"]:
            typer.echo("          JAX 0.11.2 or newer (Python 3.12 or newer) also interprets warp-level regions")
        typer.echo("compiled  no: this version of mgpu-fix does not compile to PTX yet")
        typer.echo("gpu       no: this version of mgpu-fix does not run kernels on a GPU yet")
        typer.echo(f"runs      {'forked from one warm process' if can['fork'] else 'each in a fresh process'}")


def _version(show: bool) -> None:
    if show:
        typer.echo(f"mgpu-fix {__version__}")
        raise typer.Exit


@app.callback()
def _main(
    version: Annotated[bool, typer.Option("--version", callback=_version, is_eager=True, help="Show it.")] = False,
) -> None:
    pass


def run(early: Observer | None) -> int:
    """The whole command; ``early`` is an observer that was started beforehand. Returns the exit code."""
    global _early
    _early = early
    try:
        result = app(standalone_mode=False)
        return result if isinstance(result, int) else 0
    except typer.Exit as e:
        return e.exit_code
    except KeyboardInterrupt:
        typer.echo("mgpu-fix: interrupted; files are as they were", err=True)
        return INTERRUPTED
    except typer.Abort:
        return INTERRUPTED
    except (ObserverError, CatalogueError) as e:
        typer.echo(f"mgpu-fix: {e}", err=True)
        return 2
    except Exception as e:
        # click's usage errors know how to show themselves.
        show = getattr(e, "show", None)
        if show is None:
            raise
        show()
        return 2
    finally:
        if early is not None:
            early.close()


def _codes(text: str) -> tuple[str, ...]:
    return tuple(part.strip() for part in text.split(",") if part.strip())


def _program(call: str, arg: list[str], timeout: float, budget: float, arch: str, caught: bool, cold: bool) -> Program:
    if arch not in DEVICES:
        _fail(f"--arch {arch} is not known; it is one of {', '.join(DEVICES)}")
    if arg and not call:
        _fail("--arg needs --call NAME, the kernel that takes it")
    return Program("", (), call, tuple(arg), timeout, budget, arch, caught, cold)


@contextmanager
def _observer() -> Iterator[Observer]:
    observer = _early or Observer()
    try:
        yield observer
    finally:
        observer.close()


def _carry_out(task: Task, quiet: bool) -> Report:
    catalogue = load()
    known = {name for rule in catalogue.rules for name in (rule.code, rule.name)}
    for name in (*task.options.select, *task.options.ignore):
        if name not in known:
            _fail(f"no rule is called {name}; mgpu-fix rules lists them")
    with _observer() as observer, _Progress(not quiet and sys.stderr.isatty()) as progress:
        return carry_out(task, observer, catalogue, progress.say)


def _complain(report: Report, quiet: bool) -> None:
    """What blocks a file goes to standard error, even where nothing else is said."""
    for file in report.files if quiet else ():
        if file.status == "blocked":
            typer.echo(f"{file.path}: {file.reason}", err=True)


def _write_patch(report: Report) -> None:
    patch = "".join(file.diff for file in report.files)
    sys.stdout.buffer.write(patch.encode("utf-8", "surrogateescape"))
    sys.stdout.buffer.flush()


def _colour(when: Colour, stream: object) -> bool:
    if when is not Colour.AUTO:
        return when is Colour.ALWAYS
    return bool(getattr(stream, "isatty", bool)()) and "NO_COLOR" not in os.environ


def _described(rule: Rule) -> dict[str, object]:
    signatures = to_json(list(rule.signatures))
    return {"code": rule.code, "name": rule.name, "jax": rule.jax, "fix": rule.repairs, "page": rule.page} | {
        "signatures": signatures
    }


def _fail(message: str) -> NoReturn:
    typer.echo(f"mgpu-fix: {message}", err=True)
    raise typer.Exit(2)


class _Progress:
    """One line on a terminal that says what is going on, once it takes more than a second."""

    def __init__(self, on: bool) -> None:
        self.on, self.text = on, ""
        self._timer: threading.Timer | None = None
        self._shown = False

    def say(self, text: str) -> None:
        """What is going on now."""
        self.text = text
        if self._shown:
            self._show()

    def _show(self) -> None:
        self._shown = True
        sys.stderr.write(f"\r\x1b[K{self.text} …")
        sys.stderr.flush()

    def __enter__(self) -> "_Progress":
        if self.on:
            self._timer = threading.Timer(1.0, self._show)
            self._timer.daemon = True
            self._timer.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._timer is not None:
            self._timer.cancel()
        if self._shown:
            sys.stderr.write("\r\x1b[K")
            sys.stderr.flush()
