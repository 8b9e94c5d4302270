"""The failures of one run, each written down once, with its place."""

import re
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from mgpu_fix.model import Facts, Failure, Returned, Span
from mgpu_fix.observe import locate
from mgpu_fix.observe.kernels import Call

_CAPTURED = re.compile(r"captures (non-scalar array |non-Ref )?constants \[|memref<")
_SCOPE_REFUSED = "Only thread-collective allocations are supported in run_scoped"


class Records:
    """Failures in the order they came. ``emit`` receives each new one as ("failure", Failure)."""

    def __init__(self, emit: Callable[[str, Any], None], include_caught: bool) -> None:
        self.emit, self.include_caught = emit, include_caught
        self.failures: list[Failure] = []
        #: what the test that runs now is marked to fail with
        self.expected: tuple[type[BaseException], ...] = ()
        self._errors: list[BaseException] = []

    def caught_here(self, error: BaseException) -> bool:
        """Whether the program stands where it expects ``error``, so that it is no failure."""
        return not self.include_caught and (isinstance(error, self.expected) or locate.is_caught(error))

    def knows(self, error: BaseException) -> bool:
        """Whether this very exception was written down."""
        return any(error is e for e in self._errors)

    def raised(
        self, error: BaseException, stage: str, kernel: str = "", facts: Facts = Facts(), place: Span | None = None
    ) -> int:
        """Write down an exception; returns its number. ``place`` is used where neither it nor the stack has one."""
        failure = locate.failure(error, stage, kernel, facts, self.caught_here(error))
        if facts.returned and stage == "trace" and "should return None" in failure.message:
            failure = replace(failure, span=locate.return_span(facts.returned[0].body))
        body = facts.captures.body if facts.captures is not None else None
        elsewhere = failure.span is None or body is None or failure.span.path != body.path
        if body is not None and elsewhere and _CAPTURED.search(failure.message):
            # The call may stand in a file that has no part in it.
            failure = replace(failure, span=Span(body.path, body.line, body.column, body.line, body.column))
        refused = [scope.span for scope in facts.scopes if not scope.accepted]
        if refused and failure.message.startswith(_SCOPE_REFUSED) and failure.span not in refused:
            # For a semaphore JAX does not say which scope it is.
            failure = replace(failure, span=refused[0])
        self._errors.append(error)
        return self._add(replace(failure, span=failure.span or locate.call_site() or place))

    def met_again(self, call: Call) -> None:
        """A call that failed where the program expects it is no longer expected once it is made elsewhere, too."""
        expected = call.error is not None and self.caught_here(call.error)
        for i in call.failures:
            if self.failures[i].caught and not expected:
                self.failures[i] = replace(self.failures[i], caught=False)
                self.emit("uncaught", i)

    def amend(self, number: int, facts: Facts) -> None:
        """Write down what was learned about a failure later on."""
        self.failures[number] = replace(self.failures[number], facts=facts)
        self.emit("amended", [number, facts])

    def dropped(self, call: Call, silent: Returned, facts: Facts) -> int:
        """Write down that JAX drops a returned value without a word."""
        body = silent.body
        where = f"{silent.entry} {body.name} at {body.path}:{body.line}"
        message = f"The kernel function in {where} should return None. JAX drops what it returns without an error."
        facts = replace(facts, callee=silent.entry)
        return self._seen("ReturnedValueDropped", message, locate.return_span(body), call, facts)

    def uncommitted(self, call: Call, facts: Facts) -> int:
        """Write down copies out of SMEM that may run ahead of the stores before them."""
        first = facts.uncommitted[0]
        message = (
            f"copy_smem_to_gmem copies what was stored at line {first.store.line}, and no commit_smem stands between. "
            "JAX lowers it; a GPU may copy what was there before."
        )
        return self._seen("MissingCommit", message, first.copy, call, facts)

    def misplaced(self, call: Call, name: str, span: Span | None) -> int:
        """Write down a ``pl.program_id`` over a mesh, which lowers, but which the interpreter gets wrong."""
        message = f"{name} in a kernel over a mesh: JAX lowers it, but its interpreter gives it a wrong value."
        return self._seen("UnreliableGridPosition", message, span, call, Facts(callee=name))

    def _seen(self, kind: str, message: str, span: Span | None, call: Call, facts: Facts) -> int:
        """A failure that JAX does not raise."""
        chain = ((kind, message),)
        return self._add(Failure(kind, message, "trace", span, call.kernel.name, chain, facts=facts))

    def _add(self, failure: Failure) -> int:
        for i, known in enumerate(self.failures):
            # A declaration in a loop or a factory fails once for each time that it is made.
            same = (known.type, known.message, known.span) == (failure.type, failure.message, failure.span)
            if same and known.stage == failure.stage == "import":
                return i
        self.failures.append(failure)
        self.emit("failure", failure)
        return len(self.failures) - 1
