"""``pytest --mgpu-fix``: each failing test also shows the rule that knows its kernel's error, and a proven diff.

pytest imports this in every session, so it loads nothing before it is asked for. It works where the reports come
together: with xdist that is the one process that runs no tests.
"""

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from mgpu_fix.failing_tests import Repairs

_SECTION = "mgpu-fix"


def pytest_addoption(parser: pytest.Parser) -> None:
    """The one option."""
    parser.getgroup("mgpu-fix").addoption(
        "--mgpu-fix",
        action="store_true",
        help="Run each failing test again, and show how its Pallas kernels can be fixed; writes nothing.",
    )


def pytest_configure(config: pytest.Config) -> None:
    """Begin, if asked, and not in a worker of xdist."""
    if config.getoption("mgpu_fix") and not hasattr(config, "workerinput"):
        from mgpu_fix.failing_tests import Repairs

        repairs = Repairs(config.invocation_params, config.rootpath)
        config.add_cleanup(repairs.close)
        config.pluginmanager.register(_Told(repairs), "mgpu_fix_told")


class _Told:
    """Adds to reports, and tells at the end what can be done."""

    def __init__(self, repairs: "Repairs") -> None:
        self.repairs = repairs
        self.failed: dict[str, pytest.TestReport] = {}

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed:
            self.failed.setdefault(report.nodeid, report)
        if report.when == "teardown" and report.nodeid in self.failed:
            # Only now has the test put back what it changed, as the working directory. JUnit reads the properties of a
            # test from this last of its reports.
            properties = self._add(self.failed.pop(report.nodeid))
            report.user_properties = [*report.user_properties, *properties]

    @pytest.hookimpl(tryfirst=True)
    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        if report.failed and report.nodeid.endswith(".py"):
            self._add(report)

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        command = self.repairs.command_to_apply
        if command:
            terminalreporter.section(_SECTION)
            terminalreporter.line(f"Nothing was written; this does it:\n{command}")

    def _add(self, report: pytest.TestReport | pytest.CollectReport) -> tuple[tuple[str, str], ...]:
        crash = getattr(report.longrepr, "reprcrash", None)
        told = self.repairs.of(report.nodeid, str(crash.message if crash else report.longrepr))
        if told is None:
            return ()
        report.sections.append((_SECTION, told.text))
        return told.properties
