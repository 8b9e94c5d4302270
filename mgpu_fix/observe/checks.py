"""The program's own tests, in the run: which of them fail for a reason of their own, and what they have seen.

Whoever runs the tests, pytest or unittest, catches what they raise, so it is asked for here.
"""

import os
import sys
from collections.abc import Callable, Collection, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mgpu_fix.model import Check
from mgpu_fix.observe import locate
from mgpu_fix.observe.command import Command
from mgpu_fix.observe.launch import Unusable
from mgpu_fix.observe.probe import Probe
from mgpu_fix.observe.values import first_line

if TYPE_CHECKING:
    import pytest

#: options, by their names in pytest's configuration, that would take the tests out of this process (xdist, forked),
#: wait for somebody at a terminal, or write and clear what is of the user's own runs
_HERE: dict[str, object] = {
    "numprocesses": None,
    "dist": "no",
    "tx": [],
    "forked": False,
    "usepdb": False,
    "trace": False,
    "cacheclear": False,
    "xmlpath": None,
    "htmlpath": None,
    "mgpu_fix": False,
}
#: the name of our plugin in a session of pytest
_PLUGIN = "mgpu-fix"
#: what unittest.expectedFailure leaves on a test
_UNITTEST_XFAIL = "__unittest_expecting_failure__"


class Checks:
    """Watches the tests of one run. ``is_pallas_error`` tells an error of Pallas from one of the program's."""

    def __init__(self, probe: Probe, is_pallas_error: Callable[[BaseException], bool], folder: str) -> None:
        self.probe, self.is_pallas_error, self.folder = probe, is_pallas_error, folder
        self.failed: dict[str, Check] = {}
        #: what stops all tests at once
        self.stopped = ""
        self._ran: set[str] = set()
        # Values made outside of any test, by an import or a fixture, may be looked at in each.
        self._shared: set[str] = set()
        self._watches_pytest = False

    def start(self, name: str) -> None:
        """A test starts now; kernels called since the last one ended were called for all."""
        self._ran.add(name)
        self.share()

    def share(self) -> None:
        """What kernels were called until now, every test may see."""
        self._shared |= self.probe.interpreter.touched
        self.probe.interpreter.touched.clear()

    def end(self) -> None:
        """The test that was started has ended."""
        self.probe.interpreter.touched.clear()

    def fail(self, name: str, error: BaseException | None, why: str = "") -> None:
        """A test fails now, with an error or for another reason."""
        known = error is not None and self.probe.records.knows(error)
        if isinstance(error, Exception) and not known and self.is_pallas_error(error):
            self.probe.stopped_by(error)
            known = True
        if error is not None and not known:
            why = f"{type(error).__name__}: {first_line(error)}"
        seen = self._shared | self.probe.interpreter.touched
        span = locate.stop_span(error) if error is not None else None
        unproven = bool(seen & self.probe.interpreter.placeholders)
        kernels = tuple(sorted({label.partition(" ")[0] for label in seen}))
        self.failed.setdefault(name, Check(name, "" if known else why, span, kernels, unproven))

    def reason(self) -> str:
        """One line on what fails; empty where it is told already."""
        own = [c for c in self.failed.values() if c.reason]
        if not own:
            return self.stopped
        missing = next((c for c in own if c.name not in self._ran), None)
        if missing:
            return f"{missing.name} does not load: {missing.reason}"
        tests = "1 test fails" if len(own) == 1 else f"{len(own)} tests fail, first"
        return f"{tests} (of {len(self._ran)}): {own[0].name}: {own[0].reason}"

    def watch(self, module: str) -> None:
        """Be told of a module that the program is about to import."""
        if module == "unittest.main":
            # What comes before it is there by now.
            self._watch_unittest(sys.modules["unittest.result"].TestResult)
        elif module.startswith("_pytest.") and not self._watches_pytest:
            managers = getattr(sys.modules.get("pluggy"), "PluginManager", None)
            if managers is not None:
                self._watches_pytest = True
                self._watch_pytest(managers)

    # ------------------------------------------------------------------ unittest

    def _watch_unittest(self, results: type) -> None:
        """Hear of the tests that unittest runs, by itself or under a runner that stands on it, through its
        ``TestResult``."""
        for name, told in (("startTest", self._started), ("stopTest", self._ended)):
            _before(results, name, told)
        for name in ("addFailure", "addError", "addSubTest"):
            _before(results, name, self._erred)
        _before(results, "addUnexpectedSuccess", self._passed)

    def _started(self, test: Any) -> None:
        self.start(test.id())
        method = getattr(test, getattr(test, "_testMethodName", ""), None)
        self.probe.records.expected = (BaseException,) if getattr(method, _UNITTEST_XFAIL, False) else ()

    def _ended(self, test: Any) -> None:
        self.end()
        self.probe.records.expected = ()

    def _erred(self, test: Any, *errors: Any) -> None:
        # addSubTest is told of subtests that pass, too, with None.
        if errors[-1] is not None:
            self.fail(test.id(), errors[-1][1])

    def _passed(self, test: Any) -> None:
        self.fail(test.id(), None, "it was expected to fail")

    # ------------------------------------------------------------------ pytest

    def _watch_pytest(self, managers: type) -> None:
        """Hear of the tests that a script gives to ``pytest.main`` by itself, through pluggy's ``PluginManager``."""
        original = managers.load_setuptools_entrypoints  # type: ignore[attr-defined]

        def load(manager: Any, group: str, *args: Any, **kwargs: Any) -> Any:
            found = original(manager, group, *args, **kwargs)
            if group == "pytest11" and not manager.has_plugin(_PLUGIN):
                manager.register(_plugin(self))
            return found

        managers.load_setuptools_entrypoints = load  # type: ignore[attr-defined]

    def run_pytest(self, command: Command) -> None:
        """Run pytest in this process; leaves as pytest does, with its exit status."""
        try:
            import pytest
        except ImportError:
            raise Unusable("pytest is not installed beside mgpu-fix; install it with: pip install pytest") from None
        code = int(pytest.main(list(command.argv), plugins=[_plugin(self, command.only)]))
        if code in (pytest.ExitCode.USAGE_ERROR, pytest.ExitCode.INTERNAL_ERROR):
            raise Unusable(f"pytest itself ends with exit status {code}: {self._last_error()}")
        if code == pytest.ExitCode.NO_TESTS_COLLECTED:
            self.stopped = self.stopped or "pytest finds no test to run"
        if code:
            raise SystemExit(code)

    def _last_error(self) -> str:
        with open(f"{self.folder}/output.txt", encoding="utf-8", errors="replace") as output:
            said = [line.strip() for line in output if "error" in line.lower()]
        return said[-1] if said else "see its output"


def _before(owner: type, name: str, told: Callable[..., None]) -> None:
    original = getattr(owner, name)

    def method(self: Any, *args: Any) -> Any:
        told(*args)
        return original(self, *args)

    setattr(owner, name, method)


def _plugin(checks: Checks, only: Collection[str] = ()) -> Any:
    """A plugin for one pytest session, of whose tests ``only`` those are run where it says any. Made where pytest is
    known to be there."""
    import pytest

    files = {nodeid.partition("::")[0] for nodeid in only}

    class Plugin:
        @pytest.hookimpl(wrapper=True, tryfirst=True)
        def pytest_cmdline_main(self, config: "pytest.Config") -> Iterator[None]:
            for name, value in _HERE.items():
                if hasattr(config.option, name):
                    setattr(config.option, name, value)
            if not getattr(config.option, "basetemp", None):
                config.option.basetemp = f"{checks.folder}/tests"
            return (yield)  # type: ignore[return-value]

        @pytest.hookimpl(trylast=True)
        def pytest_configure(self, config: "pytest.Config") -> None:
            if hasattr(config, "cache"):
                # What failed under the probe is no news for the user's next --last-failed.
                config.cache.set = lambda key, value: None  # type: ignore[method-assign]

        def pytest_ignore_collect(self, collection_path: Path, config: "pytest.Config") -> bool | None:
            if not only or collection_path.is_dir():
                return None
            return None if os.path.relpath(collection_path, config.rootpath).replace(os.sep, "/") in files else True

        @pytest.hookimpl(trylast=True)
        def pytest_collection_modifyitems(self, items: "list[pytest.Item]") -> None:
            # A file that does not load is named itself.
            items[:] = [i for i in items if not only or {i.nodeid, i.nodeid.partition("::")[0]} & set(only)]

        @pytest.hookimpl(wrapper=True, tryfirst=True)
        def pytest_runtest_protocol(self, item: "pytest.Item") -> Iterator[None]:
            checks.start(item.nodeid)
            try:
                return (yield)  # type: ignore[return-value]
            finally:
                checks.end()

        @pytest.hookimpl(wrapper=True, tryfirst=True)
        def pytest_runtest_setup(self) -> Iterator[None]:
            try:
                return (yield)  # type: ignore[return-value]
            finally:
                checks.share()

        @pytest.hookimpl(wrapper=True, tryfirst=True)
        def pytest_runtest_call(self, item: "pytest.Item") -> Iterator[None]:
            checks.probe.records.expected = _expected(item)
            try:
                return (yield)  # type: ignore[return-value]
            finally:
                checks.probe.records.expected = ()

        @pytest.hookimpl(wrapper=True, tryfirst=True)
        def pytest_runtest_makereport(self, item: "pytest.Item", call: Any) -> Iterator[None]:
            report: Any = yield
            if report.failed:
                error = call.excinfo.value if call.excinfo else None
                checks.fail(item.nodeid, error, str(report.longrepr).strip().partition("\n")[0])
            return report  # type: ignore[no-any-return]

        def pytest_exception_interact(self, node: Any, call: Any, report: Any) -> None:
            if isinstance(report, pytest.CollectReport):
                # A conftest.py or a test module that does not import: the cause is what it ran into.
                error = call.excinfo.value
                checks.fail(node.nodeid or "collection", error.__cause__ or error)

        def pytest_keyboard_interrupt(self, excinfo: Any) -> None:
            checks.stopped = f"pytest is stopped: {first_line(excinfo.value)}"

    plugin: Any = Plugin()
    plugin.__name__ = _PLUGIN
    return plugin


def _expected(item: "pytest.Item") -> tuple[type[BaseException], ...]:
    """Errors that a test is marked to fail with."""
    types_: list[type[BaseException]] = []
    for marker in item.iter_markers("xfail"):
        conditions = [*marker.args, *([marker.kwargs["condition"]] if "condition" in marker.kwargs else [])]
        # A condition that is text is looked up in the module; to expect too much only leaves a kernel as it is.
        if not conditions or any(conditions):
            raises = marker.kwargs.get("raises") or BaseException
            types_ += raises if isinstance(raises, tuple) else [raises]
    if getattr(getattr(item, "obj", None), _UNITTEST_XFAIL, False):
        types_.append(BaseException)
    return tuple(types_)
