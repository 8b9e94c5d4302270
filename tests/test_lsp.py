"""The language server without a run: settings, ranges and edits as plain data, and the protocol over a pipe."""

import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any
from urllib.parse import urlparse
from urllib.request import url2pathname

import pytest
from bare_client import CAPABILITIES, at, client
from hypothesis import given
from hypothesis import strategies as st
from test_engine import PATH, Rename, Scripted, Swap, engine

from mgpu_fix.catalogue import Catalogue, Rule, load
from mgpu_fix.console import UsageError
from mgpu_fix.engine import Engine
from mgpu_fix.levels import Applicability
from mgpu_fix.lsp import settings
from mgpu_fix.lsp.analysis import Action, Analysis, Problem, Severity, with_runs
from mgpu_fix.model import Edit, Failure, KernelCall, Observation, Span
from mgpu_fix.problems import Options
from mgpu_fix.source import SourceError, SourceFile, apply_edits, edits_between


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "work").mkdir()
    return tmp_path / "work"


needs_pygls = pytest.mark.skipif(find_spec("pygls") is None, reason="the language server is not installed")


@pytest.fixture(autouse=True)
def _cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


# ---------------------------------------------------------------------- what is shown, and what can be done


def analyses(text: str, runner: Scripted, *rules: Rule, options: Options = Options()) -> list[Analysis]:
    return list(with_runs(engine(text, runner, *rules, options=options), PATH, command=False))


def titles(problem: Problem) -> list[tuple[str, bool]]:
    return [(action.title, action.preferred) for action in problem.actions]


def made(text: str, action: Action) -> str:
    return apply_edits(text, action.changes[PATH])


def test_each_kernel_has_a_fix_of_its_own_and_all_have_one_together() -> None:
    text = "a = 'fails X'\nb = 'fails Y'\nc = 'gives 3'\n"
    first, last = analyses(text, Scripted({"a": "1", "b": "2"}), Swap("X", "gives 1"), Swap("Y", "gives 2"))
    assert [titles(p) for p in first.problems] == [[(f"make it gives {n} (not proven)", False)] for n in (1, 2)]
    assert first.fix_all is None
    assert [titles(p) for p in last.problems] == [[(f"make it gives {n}", True)] for n in (1, 2)]
    assert [p.span.line for p in last.problems] == [1, 2]
    assert [made(text, p.actions[0]) for p in last.problems] == [
        text.replace("fails X", "gives 1"),
        text.replace("fails Y", "gives 2"),
    ]
    assert last.fix_all is not None and last.fix_all.preferred
    assert made(text, last.fix_all) == text.replace("fails X", "gives 1").replace("fails Y", "gives 2")


def test_a_rename_that_mends_several_is_one_fix_of_each() -> None:
    text = "a = 'fails OLD'\nb = 'fails OLD'\n"
    last = analyses(text, Scripted({"a": "1", "b": "1"}), Rename())[-1]
    assert [titles(p) for p in last.problems] == [[("rename", True)]] * 2
    assert {made(text, p.actions[0]) for p in last.problems} == {text.replace("fails OLD", "gives 1")}


def test_a_chain_is_one_fix() -> None:
    text = "a = 'fails X'\n"
    last = analyses(text, Scripted({"a": "1"}), Swap("X", "fails Y"), Swap("Y", "gives 1"))[-1]
    assert titles(last.problems[0]) == [("make it fails Y; then: make it gives 1", True)]
    assert made(text, last.problems[0].actions[0]) == "a = 'gives 1'\n"


def test_what_a_run_refuted_is_not_offered_and_what_none_tried_says_so() -> None:
    text = "a = 'fails X'\n"
    last = analyses(text, Scripted({"a": "1"}), Swap("X", "gives 9", "gives 1", "gives 1.0"))[-1]
    assert titles(last.problems[0]) == [("make it gives 1", True), ("make it gives 1.0 (not proven)", False)]


@pytest.mark.parametrize(
    ("level", "unsafe", "title"),
    [
        (Applicability.DISPLAY, False, "make it gives 1 (suggestion)"),
        (Applicability.DISPLAY, True, "make it gives 1 (suggestion)"),
        (Applicability.UNSAFE, False, "make it gives 1, which may change what is computed (not proven)"),
        (Applicability.UNSAFE, True, "make it gives 1 (proven, but not safe)"),
    ],
)
def test_only_what_is_safe_and_proven_is_preferred(level: Applicability, unsafe: bool, title: str) -> None:
    rule = Swap("X", "gives 1", level=level)
    last = analyses("a = 'fails X'\n", Scripted({"a": "1"}), rule, options=Options(unsafe=unsafe))[-1]
    assert titles(last.problems[0]) == [(title, False)]
    assert last.fix_all is None


def test_fixing_all_leaves_out_what_is_not_safe() -> None:
    text = "a = 'fails X'\nb = 'fails Y'\n"
    rules = Swap("X", "gives 1", level=Applicability.UNSAFE), Swap("Y", "gives 2")
    last = analyses(text, Scripted({"a": "1", "b": "2"}), *rules, options=Options(unsafe=True))[-1]
    assert last.fix_all is not None
    assert made(text, last.fix_all) == text.replace("fails Y", "gives 2")


def test_what_cannot_be_fixed_says_why() -> None:
    last = analyses("a = 'fails X'\n", Scripted({"a": "1"}), Swap("X", "gives 9"))[-1]
    [problem] = last.problems
    assert not problem.actions and last.fix_all is None
    assert problem.message.startswith("X: X went wrong at line 1\nmgpu-fix: no fix held: make it gives 9: ")


def one(failure: Failure, *calls: KernelCall, text: str = "x = 1\n", command: bool = False) -> tuple[Problem, ...]:
    seen = Observation("ok", calls, (failure,))
    searched = Engine(lambda texts, draws: seen, Catalogue(()), {PATH: SourceFile(PATH, text.encode())})
    return list(with_runs(searched, PATH, command))[-1].problems


def test_a_failure_elsewhere_shows_at_the_kernel_and_names_its_place() -> None:
    there = Span("/helper.py", 7, 5, 7, 9)
    call = KernelCall("k", "pl.kernel", Span(PATH, 2), (), (), "trace", failures=(0,))
    [problem] = one(Failure("E", "m", "trace", there, "k"), call, text="x = 1\n  y = 2\n".replace("  ", ""))
    assert problem.span == Span(PATH, 2, 1, 2, 6)
    assert problem.related[0].span == there
    [problem] = one(Failure("E", "m", "trace", there, "k"))
    assert problem.span.line == 1
    # What a command runs is not about this file alone.
    assert one(Failure("E", "m", "trace", there, "k"), command=True) == ()


def test_a_line_without_columns_is_shown_as_far_as_its_text_goes() -> None:
    [problem] = one(Failure("E", "m", "trace", Span(PATH, 2)), text="if x:\n    y = 2  \n")
    assert problem.span == Span(PATH, 2, 5, 2, 10)


def test_what_the_program_expects_is_not_shown() -> None:
    assert one(Failure("E", "m", "trace", Span(PATH, 1), caught=True)) == ()


def test_what_a_run_tells_is_not_told_twice() -> None:
    static = Analysis((Problem(Span(PATH, 1), "certain", code="E"), Problem(Span(PATH, 2), "certain", code="E")))
    caught = Observation("ok", (), (Failure("E", "E!", "trace", Span(PATH, 1), caught=True),))
    seen = Observation("ok", (), (Failure("E", "E!", "trace", Span(PATH, 1)),))
    for run, messages in ((caught, ["certain"]), (seen, ["E: E!\nmgpu-fix: nothing helps", "certain"])):
        text = SourceFile(PATH, b"x = 1\ny = 2\n")
        searched = Engine(lambda texts, draws, run=run: run, Catalogue((Swap("E"),)), {PATH: text})  # type: ignore[misc]
        found = list(with_runs(searched, PATH, command=False))[-1].over(static)
        assert [p.message for p in found.problems] == messages


def test_a_program_that_does_not_end_says_that_nothing_was_tried() -> None:
    runs = Observation("timeout", (), (Failure("X", "X!", "trace", Span(PATH, 1), "a"),), "it hung")
    searched = Engine(
        lambda texts, draws: runs, Catalogue((Swap("X", "gives 1"),)), {PATH: SourceFile(PATH, b"a = 1\n")}
    )
    problem, told = list(with_runs(searched, PATH, command=False))[-1].problems
    assert problem.message.endswith("not tried, since the program cannot be run to its end: it hung")
    assert titles(problem) == [("make it gives 1 (not proven)", False)]
    assert (told.message, told.severity) == ("mgpu-fix: it hung", Severity.INFORMATION)


# ---------------------------------------------------------------------- texts


@given(st.lists(st.sampled_from(["a", "b", "ab", "\r\n", "\n", "\f", "😋"])), st.lists(st.sampled_from("ab\n😋")))
def test_edits_make_the_new_text(old: list[str], new: list[str]) -> None:
    a, b = "".join(old), "".join(new)
    made = edits_between(a, b)
    assert apply_edits(a, made) == b
    assert all(a[e.start - 1 : e.start + 1] != "\r\n" and a[e.end - 1 : e.end + 1] != "\r\n" for e in made)


def test_edits_are_of_what_differs() -> None:
    assert edits_between("a\nreturn x + 1\nb\n", "a\no[...] = x + 1\nb\n") == (Edit(2, 8, "o[...] ="),)


@pytest.mark.parametrize(("encoding", "units"), [("utf-8", 7), ("utf-16", 5), ("utf-32", 4)])
def test_columns_are_counted_as_agreed(encoding: str, units: int) -> None:
    assert SourceFile(PATH, 'x="😋"\n'.encode()).units(1, 5, encoding) == units


def test_an_editors_text_is_encoded_as_it_declares() -> None:
    text = "# coding: latin-1\nx = 'é'\n"
    assert SourceFile.of_text(PATH, text).data == text.encode("latin-1")
    with pytest.raises(SourceError):
        SourceFile.of_text(PATH, text.replace("é", "😋"))
    with pytest.raises(SourceError):
        SourceFile.of_text(PATH, "x = '\ud800'\n")


def test_an_analysis_is_summed_up_in_a_few_words() -> None:
    proven = Problem(Span("k.py", 1), "", actions=(Action("", {}, preferred=True), Action("", {})))
    other = Problem(Span("k.py", 2), "", Severity.WARNING, actions=(Action("", {}),))
    stops = Problem(Span("k.py", 3), "", Severity.INFORMATION)
    assert Analysis().summary == "clean"
    assert Analysis((stops,)).summary == "some kernels were not seen"
    assert Analysis((other, stops)).summary == "1 problem"
    assert Analysis((proven, other)).summary == "2 problems, 1 with a proven fix"


# ---------------------------------------------------------------------- settings


def test_settings_may_stand_under_the_servers_name() -> None:
    for message in ({"trust": True}, {"mgpu-fix": {"trust": True}}, {"settings": {"trust": True}}):
        assert settings.read(message) == settings.Settings(trust=True)
    before = settings.Settings(trust=True, run="pytest")
    assert settings.read({"mgpu-fix": {"arch": "sm_100a", "run": None}}, before).run == "pytest"
    assert settings.read(None, before) == settings.read([], before) == before
    called = settings.Settings(call="scale", args=("f32[8]",), reference="truth")
    assert settings.read({"call": "scale", "args": ["f32[8]"], "reference": "truth"}) == called


@pytest.mark.parametrize(
    "given",
    [
        {"trust": "yes"},
        {"trust": 1},
        {"timeout": True},
        {"arch": "sm_1"},
        {"run": 1},
        {"args": "f32[8]"},
        {"args": [8]},
    ],
)
def test_a_setting_that_is_none_is_refused(given: dict[str, Any]) -> None:
    with pytest.raises(UsageError, match=f"the setting {next(iter(given))} is "):
        settings.read(given)


def test_a_repository_cannot_say_that_it_is_run(folder: Path) -> None:
    table = '[tool.mgpu-fix]\ntrust = true\nrun = "pytest"\nignore = ["MGF401"]\ntimeout = 5\n'
    (folder / "pyproject.toml").write_text(table)
    path = str(folder / "a b.py")
    source = SourceFile.of_text(path, "x = 1\n")
    task, oracle = settings.asked(source, str(folder), settings.Settings(timeout=7.0), load())
    assert (task.program.command, task.program.timeout, task.options.ignore) == (None, 7.0, ("MGF401",))
    assert (task.mode, task.files, oracle) == ("preview", (path,), "")
    task, _ = settings.asked(source, str(folder), settings.Settings(run="pytest ${file}"), load())
    assert task.program.command is not None and task.program.command.argv == (path,)
    with pytest.raises(UsageError, match="the setting run: "):
        settings.asked(source, str(folder), settings.Settings(run="make"), load())


def test_settings_that_exclude_each_other_are_refused() -> None:
    with pytest.raises(UsageError, match="args needs call"):
        settings.read({"args": ["f32[8]"]})
    with pytest.raises(UsageError, match="run and call exclude each other"):
        settings.read({"call": "scale"}, settings.Settings(run="pytest"))


def test_only_files_that_define_the_function_have_it_called(folder: Path) -> None:
    given = settings.Settings(call="scale", args=("f32[8]",))
    for text, called in {"def scale(x): ...\n": True, "scale = f()\n": True, "def f(scale): ...\n": False}.items():
        source = SourceFile.of_text(str(folder / "k.py"), text)
        program = settings.asked(source, str(folder), given, load())[0].program
        assert (program.call, program.args) == (("scale", ("f32[8]",)) if called else ("", ()))


def test_places_in_a_repositorys_settings_are_its_own_wherever_the_server_runs(folder: Path) -> None:
    table = '[tool.mgpu-fix]\nreference = "tests/truth.py:f"\ngolden = "kept"\noracle-python = "venv/bin/python"\n'
    (folder / "pyproject.toml").write_text(table)
    (folder / "pkg").mkdir()
    source = SourceFile.of_text(str(folder / "k.py"), "")
    task, oracle = settings.asked(source, str(folder / "pkg"), settings.Settings(), load())
    # Programs run in the workspace's folder.
    assert task.program.reference == os.path.join("..", "tests", "truth.py:f")
    assert (task.goldens, oracle) == (str(folder / "kept"), str(folder / "venv" / "bin" / "python"))
    task, _ = settings.asked(source, str(folder / "pkg"), settings.Settings(reference="truth:g"), load())
    assert task.program.reference == "truth:g"


# ---------------------------------------------------------------------- the protocol, without a run

OLD = """\
import jax
from jax.experimental.pallas import mosaic_gpu as plgpu

open("ran", "w").close()
emoji = "😋"; params = plgpu.GPUCompilerParams()  # 😋
"""


@needs_pygls
@pytest.mark.parametrize("encoding", ["utf-8", "utf-16", "utf-32"])
def test_an_old_name_shows_in_its_place_and_is_renamed_without_a_run(folder: Path, encoding: str) -> None:
    (folder / "k.py").write_text(OLD)
    agreed = {**CAPABILITIES, "general": {"positionEncodings": [encoding]}}
    with client(folder, capabilities=agreed) as editor:
        editor.open("k.py")
        [shown] = editor.painted("k.py")
        assert shown["range"] == at(OLD, "plgpu.GPUCompilerParams", encoding)
        assert (shown["code"], shown["severity"], shown["source"]) == ("MGF902", 1, "mgpu-fix")
        page = Path(url2pathname(urlparse(shown["codeDescription"]["href"]).path))
        assert "## Fix safety" in page.read_text()
        [action] = editor.actions("k.py", shown["range"])
        assert action["title"].endswith("(not proven)")
        assert not action["isPreferred"]
        assert editor.applied(action)["k.py"] == OLD.replace("GPUCompilerParams", "CompilerParams")
        assert editor.actions("k.py", {"start": {"line": 0, "character": 0}, "end": {"line": 0, "character": 1}}) == []
        assert editor.actions("k.py", only=["source.fixAll"]) == []
        # A keystroke outdates what was found, saving finds it again.
        editor.type("k.py", "\n" + OLD)
        assert editor.actions("k.py") == []
        editor.save("k.py")
        [shown] = editor.painted("k.py")
        assert shown["range"] == at("\n" + OLD, "plgpu.GPUCompilerParams", encoding)
        editor.tell("textDocument/didClose", {"textDocument": {"uri": editor.uri("k.py")}})
        assert editor.painted("k.py") == []


@needs_pygls
@pytest.mark.skipif(not os.path.exists("/proc/self/task"), reason="tells a process's children by /proc")
@pytest.mark.parametrize("options", [None, {"trust": False, "run": "python ${file}"}, {"trust": "true"}])
def test_without_trust_no_process_is_started(folder: Path, options: Any) -> None:
    (folder / "k.py").write_text(OLD)
    with client(folder, options) as editor:
        editor.open("k.py")
        editor.painted("k.py")
        editor.type("k.py", OLD + "\n")
        editor.save("k.py")
        editor.tell("workspace/didChangeConfiguration", {"settings": {"mgpu-fix": {"arch": "sm_100a"}}})
        editor.settle(1)
        children = Path(f"/proc/{editor.process.pid}/task").glob("*/children")
        assert "".join(file.read_text() for file in children) == ""
        assert os.listdir(folder) == ["k.py"]
        assert not (folder.parent / "ran").exists()


@needs_pygls
def test_a_comment_that_ignores_no_rule_gets_a_hint(folder: Path) -> None:
    with client(folder) as editor:
        editor.open("k.py", "# pallas\nx = 1  # mgpu-fix: ignore[MGF902, MGF999]\n")
        [shown] = editor.painted("k.py")
        assert shown["severity"] == 4
        assert shown["message"] == "mgpu-fix: no rule is called MGF999; this ignores nothing"
        assert shown["range"] == at(editor.texts["k.py"], "# mgpu-fix: ignore[MGF902, MGF999]")


@needs_pygls
def test_a_text_that_is_no_python_or_no_kernel_shows_nothing(folder: Path) -> None:
    with client(folder) as editor:
        for name, text in {"a.py": "import pallas (", "b.py": "x = 1\n", "c.py": "# pallas\n"}.items():
            editor.open(name, text)
            assert editor.painted(name) == []


@needs_pygls
def test_what_is_installed_is_left_alone(folder: Path) -> None:
    there = folder / ".venv" / "lib" / "site-packages"
    there.mkdir(parents=True)
    (there / "k.py").write_text(OLD)
    with client(folder) as editor:
        editor.open(".venv/lib/site-packages/k.py")
        editor.open("own.py", OLD)
        assert editor.painted("own.py")
        assert [m["params"]["uri"] for m in editor.heard if m["method"].endswith("Diagnostics")] == [
            editor.uri("own.py")
        ]


@needs_pygls
def test_what_an_editor_cannot_version_is_not(folder: Path) -> None:
    (folder / "k.py").write_text(OLD)
    with client(folder, capabilities={"general": {"positionEncodings": ["utf-16"]}}) as editor:
        editor.open("k.py")
        editor.painted("k.py")
        [action] = editor.actions("k.py")
        [edit] = action["edit"]["changes"][editor.uri("k.py")]
        assert edit["newText"] == ""


@needs_pygls
def test_a_setting_that_is_none_is_told_and_nothing_ends(folder: Path) -> None:
    (folder / "k.py").write_text(OLD)
    with client(folder, {"arch": "sm_1"}) as editor:
        editor.open("k.py")
        assert editor.painted("k.py")
        said = [m["params"]["message"] for m in editor.heard if m["method"] == "window/showMessage"]
        assert said == ["mgpu-fix: the setting arch is 'sm_1'; it is one of sm_90a, sm_100a"]


def test_without_pygls_it_says_what_to_install() -> None:
    code = "import sys; sys.modules['pygls'] = None; from mgpu_fix.__main__ import main; main()"
    ran = subprocess.run([sys.executable, "-c", code, "lsp"], capture_output=True, text=True, check=False)
    assert (ran.returncode, ran.stdout) == (2, "")
    assert ran.stderr == "mgpu-fix: the language server needs pygls; install it with: pip install 'mgpu-fix[lsp]'\n"
