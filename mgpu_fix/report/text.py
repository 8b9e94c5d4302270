"""The report that people read: what failed, the diff, how it was proven, what remains."""

from collections.abc import Iterator

from mgpu_fix.levels import Oracle, VerifiedBy
from mgpu_fix.model import FileReport, Fix, ProvenKernel, Remaining, Report, Resources, duration

_COLOURS = {"red": "31", "green": "32", "yellow": "33", "cyan": "36", "bold": "1", "dim": "2"}
_STATUS = {"clean": "green", "fixed": "green", "partial": "yellow", "unfixed": "red", "blocked": "red"}


class TextReport:
    """Renders reports; ``colour`` turns ANSI colours on, ``applied`` says that files were written."""

    def __init__(self, colour: bool = False, applied: bool = True, verbose: bool = False) -> None:
        self.colour, self.applied, self.verbose = colour, applied, verbose

    def paint(self, text: str, *styles: str) -> str:
        """``text`` in a style, if colours are on."""
        if not self.colour or not styles:
            return text
        return f"\x1b[{';'.join(_COLOURS[s] for s in styles)}m{text}\x1b[0m"

    def render(self, report: Report, diffs: bool = True) -> str:
        """The whole report; ``diffs`` off leaves the patches out, for when they went to standard output."""
        return "".join(f"{line}\n" for file in report.files for line in self._file(file, report, diffs))

    def _file(self, file: FileReport, report: Report, diffs: bool) -> Iterator[str]:
        yield f"{self.paint(file.path, 'bold')}: {self.paint(self._headline(file), _STATUS[file.status])}"
        written = file.status != "blocked"
        for fix in file.fixes if written else ():
            yield from self._fix(fix)
        if file.diff and diffs and written:
            yield ""
            # Not splitlines(): a form feed or U+2028 ends no line of a patch.
            yield from (self._diff_line(line) for line in file.diff.removesuffix("\n").split("\n"))
            yield ""
        yield from self._proofs(file, report) if written else ()
        for item in file.remaining:
            yield from self._remaining(item)
        for item in file.notes:
            what = ": ".join(filter(None, (_place(item), item.code, item.message, item.reason)))
            yield f"  {self.paint('note', 'yellow')} {what}"
        if file.reason and file.status != "blocked":
            yield f"  note: {file.reason}"
        stops = file.stopped or "program stops" in file.reason
        shows = file.output.strip() and (self.verbose or file.status == "blocked" or stops)
        if shows:
            yield f"  the program's own output (exit status {file.exit_code}):"
            yield from (f"    {self.paint(line, 'dim')}" for line in file.output.rstrip().splitlines()[-20:])

    def _headline(self, file: FileReport) -> str:
        done = "fixed" if self.applied else "can be fixed"
        match file.status:
            case "blocked":
                return f"blocked: {file.reason}"
            case "fixed":
                return f"{len(file.fixes)} {done}"
            case "partial":
                return f"{len(file.fixes)} {done}, {len(file.remaining)} left"
            case "unfixed":
                return f"{len(file.remaining)} not fixed"
        calls = len(file.kernels)
        return "clean" if not calls else f"clean, {calls} kernel call{'s' if calls > 1 else ''} seen"

    def one(self, fix: Fix) -> str:
        """One fix with its own patch, but for the names of the file in it."""
        patch = fix.diff.removesuffix("\n").split("\n")[2:]
        lines = [*self._fix(fix), "", *map(self._diff_line, patch), ""]
        return "".join(f"{line}\n" for line in lines)

    def _fix(self, fix: Fix) -> Iterator[str]:
        place = f"line {fix.line}" if fix.line is not None else "a line made by an earlier fix"
        yield f"  {self.paint(fix.code, 'cyan')} {fix.name}, {place}{f', kernel {fix.kernel}' if fix.kernel else ''}"
        yield f"    {fix.title} [{fix.applicability.value}, {PROVEN[fix.verified_by]}]"
        if fix.cost:
            yield f"    cost: {fix.cost}"
        for tried in fix.tried:
            if tried.outcome != "kept":
                yield f"    tried, not kept: {tried.title}: {tried.outcome}"

    def _diff_line(self, line: str) -> str:
        style = {"+": "green", "-": "red", "@": "cyan"}.get(line[:1])
        return self.paint(line, style) if style and not line.startswith(("+++", "---")) else line

    def _proofs(self, file: FileReport, report: Report) -> Iterator[str]:
        fixed = {fix.kernel for fix in file.fixes}
        shown = [k for k in file.kernels if k.verified_by and (self.verbose or fixed)]
        for kernel in shown:
            yield f"  {self.paint('proof', 'green')} {kernel.name}: {self._proof(kernel, report)}"
        if fixed and shown:
            yield f"  Proven at these shapes only, with JAX {report.jax} in {report.runs} runs of the program."

    def _proof(self, kernel: ProvenKernel, report: Report) -> str:
        lowers = f"lowers for {report.device.removeprefix('described ')}"
        if kernel.uncompiled:
            lowers += f", but {kernel.uncompiled}"
        text = f"{kernel.inputs}; {self._compiled(kernel.resources) or lowers}"
        if kernel.gpu_seconds is not None:
            text += f"; {duration(kernel.gpu_seconds)} on the GPU"
        if kernel.oracle:
            text += f"; equal to {_ORACLE[kernel.oracle]}"
        elif kernel.note:
            text += f"; numbers not compared: {kernel.note}"
        return text

    def _compiled(self, takes: Resources | None) -> str:
        if takes is None:
            return ""
        text = f"compiles for {takes.arch}"
        if self.verbose:
            spilled, shared = takes.spill_bytes, takes.shared_bytes
            text += f" ({takes.registers} registers, {spilled} bytes spilled, {shared} bytes of shared memory)"
        return text

    def _remaining(self, item: Remaining) -> Iterator[str]:
        place = _place(item)
        reason = f"{item.code}: {item.reason}" if item.code else item.reason
        yield f"  {self.paint('left', 'red')} {place}: {reason}"
        first, *rest = item.message.strip().splitlines() or ["(JAX gives no message)"]
        yield f"    {item.type} ({item.stage}): {first}"
        if self.verbose:
            yield from (f"      {line}" for line in rest)


def _place(item: Remaining) -> str:
    return ":".join(str(p) for p in (item.path, item.line, item.column) if p) or "?"


_ORACLE = {
    Oracle.GOLDEN: "its golden file",
    Oracle.REFERENCE: "its reference, run by the interpreter",
    Oracle.ORIGINAL: "the interpreter's run of what your original means",
}
#: what is said of a fix's proof
PROVEN = {
    None: "unverified",
    VerifiedBy.GOLDEN: "equal to its golden file",
    VerifiedBy.GPU: "proven on the GPU",
    VerifiedBy.INTERPRETER: "proven by the interpreter's numbers",
    VerifiedBy.COMPILED: "compiles; numbers not compared",
    VerifiedBy.LOWERED: "lowers; numbers not compared",
}
