"""The language server with runs: what it shows and offers is what ``apply`` does."""

import asyncio
import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

pytest_lsp = pytest.importorskip("pytest_lsp", reason="the language server's tests are not installed")

from bare_client import at, client, edited  # noqa: E402
from lsprotocol import types  # noqa: E402
from test_cli import mgpu_fix  # noqa: E402
from test_lsp import _cache, folder  # noqa: E402, F401 (fixtures)
from test_repair_live import BROKEN, FIXED  # noqa: E402

pytestmark = pytest.mark.live

GOLDEN = Path(__file__).parents[1] / "golden"
TRUSTED = {"trust": True}


def applied(path: Path, *options: str) -> str:
    """What ``apply`` makes of a file, which is left as it is."""
    before = path.read_bytes()
    mgpu_fix("apply", *options, path.name, cwd=path.parent)
    after = path.read_bytes().decode()
    path.write_bytes(before)
    return after


@pytest_lsp.fixture(
    config=pytest_lsp.ClientServerConfig(server_command=[sys.executable, "-m", "mgpu_fix", "lsp"]),
    params=["visual_studio_code", "neovim", "emacs"],
)
async def editor(
    request: pytest.FixtureRequest, lsp_client: pytest_lsp.LanguageClient, tmp_path: Path
) -> AsyncIterator[None]:
    (tmp_path / "work").mkdir()
    root = (tmp_path / "work").as_uri()
    given = types.InitializeParams(
        pytest_lsp.client_capabilities(request.param),
        root_uri=root,
        workspace_folders=[types.WorkspaceFolder(root, "work")],
        initialization_options=TRUSTED,
    )

    @lsp_client.feature(types.CLIENT_REGISTER_CAPABILITY)
    def register(params: types.RegistrationParams) -> None:
        pass

    await lsp_client.initialize_session(given)
    yield
    await lsp_client.shutdown_session()


@pytest.mark.asyncio
async def test_known_editors_get_a_diagnostic_and_a_fix(editor: pytest_lsp.LanguageClient, tmp_path: Path) -> None:
    path = tmp_path / "work" / "k.py"
    text = BROKEN.replace("def double", "# 😋\ndef double").replace("# twice", "# 😋")
    path.write_text(text)
    uri = path.as_uri()
    document = types.TextDocumentItem(uri, "python", 1, text)
    editor.text_document_did_open(types.DidOpenTextDocumentParams(document))
    actions: list[Any] = []
    place = types.Range(types.Position(0, 0), types.Position(100, 0))
    await editor.wait_for_notification(types.TEXT_DOCUMENT_PUBLISH_DIAGNOSTICS)
    for _ in range(300):
        [shown] = editor.diagnostics[uri]
        assert (shown.code, shown.range.start.line) == ("MGF401", 8)
        params = types.CodeActionParams(types.TextDocumentIdentifier(uri), place, types.CodeActionContext([shown]))
        actions = await editor.text_document_code_action_async(params)
        if any(action.is_preferred for action in actions):
            break
        await asyncio.sleep(0.2)
    preferred, whole = actions
    assert preferred.is_preferred and preferred.kind == "quickfix"
    assert whole.kind == "source.fixAll.mgpu-fix"
    # Neovim's capabilities, as pytest-lsp has them, know of no versions.
    edits_made = preferred.edit.changes[uri] if preferred.edit.changes else preferred.edit.document_changes[0].edits
    edits = [
        {
            "range": {
                name: {"line": place.line, "character": place.character}
                for name, place in (("start", edit.range.start), ("end", edit.range.end))
            },
            "newText": edit.new_text,
        }
        for edit in edits_made
    ]
    after = edited(text, edits, "utf-16")
    assert after == applied(path)
    assert "o_ref[...] = x_ref" in after


@pytest.mark.parametrize("newline", ["\n", "\r\n"])
@pytest.mark.parametrize(
    "case", ["MGF401-kernel-returns-value/mesh_decorator", "MGF301-collective-axes/accumulator_first"]
)
def test_the_fix_is_that_of_apply_and_lowers(folder: Path, case: str, newline: str) -> None:  # noqa: F811
    before, after = (
        (GOLDEN / case / f"{which}.py").read_text().replace("\n", newline) for which in ("before", "after")
    )
    (folder / "k.py").write_bytes(before.encode())
    assert applied(folder / "k.py") == after
    with client(folder, TRUSTED) as editor:
        editor.open("k.py")
        editor.until_idle()
        fixes = editor.actions("k.py", only=["quickfix"])
        preferred = [a for a in fixes if a["isPreferred"]]
        assert preferred == fixes[: len(preferred)]
        # Numbers of what it gives are held against recorded ones by the golden tests.
        assert {editor.applied(a)["k.py"] for a in preferred} == {after}
        [whole] = editor.actions("k.py", only=["source.fixAll.mgpu-fix"])
        editor.type("k.py", editor.applied(whole)["k.py"])
        assert editor.texts["k.py"] == after
        editor.heard.clear()
        editor.save("k.py")
        editor.until_idle()
        assert editor.actions("k.py") == []
        assert editor.last("k.py") == []


TWO = """\
import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import mosaic_gpu as plgpu

x = jnp.arange(128, dtype=jnp.float32)
out = jax.ShapeDtypeStruct((128,), jnp.float32)


def double(x_ref, o_ref):
    return x_ref[...] * 2


def triple(x_ref, o_ref):
    return x_ref[...] * 3


print(pl.kernel(double, out_type=out, mesh=plgpu.Mesh())(x)[:2])
print(pl.kernel(triple, out_type=out, mesh=plgpu.Mesh())(x)[:2])
"""


def test_of_two_kernels_each_can_be_mended_alone(folder: Path) -> None:  # noqa: F811
    (folder / "k.py").write_text(TWO)
    with client(folder, TRUSTED) as editor:
        editor.open("k.py")
        editor.until_idle()
        [first] = editor.actions("k.py", at(TWO, "x_ref[...] * 2"))[:-1]
        [second] = editor.actions("k.py", at(TWO, "x_ref[...] * 3"))[:-1]
        [whole] = editor.actions("k.py", only=["source"])
        assert first["isPreferred"] and second["isPreferred"]
        one = TWO.replace("return x_ref[...] * 2", "o_ref[...] = x_ref[...] * 2")
        assert editor.applied(first)["k.py"] == one
        assert editor.applied(second)["k.py"] == TWO.replace("return x_ref[...] * 3", "o_ref[...] = x_ref[...] * 3")
        assert editor.applied(whole)["k.py"] == one.replace("return x_ref[...] * 3", "o_ref[...] = x_ref[...] * 3")


HELPER, MAIN = BROKEN.split("kernel = ")
MAIN = HELPER.split("def double")[0] + "from helper import double\nkernel = " + MAIN


def test_unsaved_text_of_another_file_is_what_runs(folder: Path) -> None:  # noqa: F811
    (folder / "helper.py").write_text(FIXED.split("kernel = ")[0])
    (folder / "main.py").write_text(MAIN)
    with client(folder, TRUSTED) as editor:
        editor.open("helper.py")
        editor.type("helper.py", HELPER)
        editor.open("main.py")
        editor.until_idle("main.py")
        [fix] = editor.actions("main.py", only=["quickfix"])
        assert editor.applied(fix) == {"main.py": MAIN, "helper.py": HELPER.replace("return x", "o_ref[...] = x")}
        [shown] = editor.last("main.py")
        [spot] = [r for r in shown["relatedInformation"] if r["message"] == "it fails here"]
        assert spot["location"] == {"uri": editor.uri("helper.py"), "range": at(HELPER, "return x_ref[...] * 2")}
        # What it would change is another text now.
        editor.type("helper.py", HELPER + "\n")
        assert editor.actions("main.py", only=["quickfix"]) == []
    assert (folder / "helper.py").read_text() == FIXED.split("kernel = ")[0]


SLOW = "import time\ntime.sleep(60)\n" + BROKEN


def test_a_newer_text_interrupts_the_run_of_an_older_one(folder: Path) -> None:  # noqa: F811
    (folder / "k.py").write_text(BROKEN)
    with client(folder, TRUSTED) as editor:
        editor.open("k.py")
        editor.until_idle()
        editor.type("k.py", SLOW)
        editor.save("k.py")
        editor.settle(2)
        started = time.monotonic()
        editor.type("k.py", "\n" + BROKEN)
        editor.save("k.py")
        while not any(a["isPreferred"] for a in editor.actions("k.py")):
            editor.settle(0.2)
            assert time.monotonic() - started < 30
        painted = [m["params"]["version"] for m in editor.heard if m["method"].endswith("Diagnostics")]
        assert painted == sorted(painted)
        [fix] = editor.actions("k.py", only=["quickfix"])
        assert editor.applied(fix)["k.py"] == "\n" + FIXED


def test_the_user_can_cancel_a_run(folder: Path) -> None:  # noqa: F811
    (folder / "k.py").write_text(SLOW)
    with client(folder, TRUSTED) as editor:
        editor.open("k.py")
        while not any(m["method"] == "$/progress" for m in editor.heard):
            editor.next()
        [begun] = [m["params"] for m in editor.heard if m["method"] == "$/progress"][:1]
        assert begun["value"]["cancellable"]
        started = time.monotonic()
        editor.tell("window/workDoneProgress/cancel", {"token": begun["token"]})
        editor.until_idle()
        assert time.monotonic() - started < 30
        # What needs no run is still there.
        [shown] = editor.last("k.py")
        assert shown["code"] == "MGF401"


def descendants(pid: int) -> list[int]:
    mine = [int(p) for file in Path(f"/proc/{pid}/task").glob("*/children") for p in file.read_text().split()]
    return [*mine, *(pid for child in mine for pid in descendants(child))]


@pytest.mark.skipif(not os.path.exists("/proc/self/task"), reason="tells a process's children by /proc")
@pytest.mark.parametrize(("first", "then"), [(TRUSTED, {"trust": False}), (None, {"arch": "sm_90a"})])
def test_trust_that_is_taken_back_ends_what_runs(folder: Path, first: Any, then: Any) -> None:  # noqa: F811
    (folder / "k.py").write_text(SLOW)
    with client(folder, first) as editor:
        editor.open("k.py")
        # What the settings do not say is as it was at the start.
        editor.tell("workspace/didChangeConfiguration", {"settings": {"mgpu-fix": TRUSTED}})
        editor.settle(4)
        assert descendants(editor.process.pid)
        editor.tell("workspace/didChangeConfiguration", {"settings": {"mgpu-fix": then}})
        editor.until_idle()
        editor.settle(1)
        assert descendants(editor.process.pid) == []


@pytest.mark.skipif(not os.path.exists("/proc/self/task"), reason="tells a process's children by /proc")
@pytest.mark.parametrize("polite", [True, False])
def test_an_editor_that_goes_takes_the_run_with_it(folder: Path, polite: bool) -> None:  # noqa: F811
    (folder / "k.py").write_text(SLOW)
    with client(folder, TRUSTED) as editor:
        editor.open("k.py")
        while len(descendants(editor.process.pid)) < 2:
            editor.settle(0.2)
        running = descendants(editor.process.pid)
        if polite:
            editor.close()
        else:
            assert editor.process.stdin
            editor.process.stdin.close()
            editor.process.wait(20)
        end = time.monotonic() + 10
        while any(os.path.exists(f"/proc/{pid}") for pid in running) and time.monotonic() < end:
            time.sleep(0.1)
        assert not [pid for pid in running if os.path.exists(f"/proc/{pid}")]


def test_nothing_outside_the_workspace_is_run(folder: Path) -> None:  # noqa: F811
    outside = folder.parent / "outside.py"
    outside.write_text("open('ran', 'w').close()\n" + BROKEN)
    (folder / "link.py").symlink_to(outside)
    with client(folder, TRUSTED) as editor:
        for name in ("../outside.py", "link.py"):
            uri = folder.as_uri() + "/" + name if name == "link.py" else outside.as_uri()
            document = {"uri": uri, "languageId": "python", "version": 1, "text": outside.read_text()}
            editor.tell("textDocument/didOpen", {"textDocument": document})
        editor.settle(4)
        assert not any(m["method"] == "$/progress" for m in editor.heard)
    assert not list(folder.parent.rglob("ran"))


def test_a_server_process_that_dies_is_told_once_and_replaced(folder: Path) -> None:  # noqa: F811
    deadly = "import os, signal\nos.kill(os.getppid(), signal.SIGKILL)\n" + BROKEN
    (folder / "k.py").write_text(deadly)
    with client(folder, TRUSTED) as editor:
        for _ in range(2):
            editor.open("k.py", deadly)
            editor.until_idle()
            editor.settle(0.5)
            editor.heard = [m for m in editor.heard if m["method"] == "window/showMessage"]
            editor.tell("textDocument/didClose", {"textDocument": {"uri": editor.uri("k.py")}})
        [said] = editor.heard
        assert "mgpu-fix cannot run programs" in said["params"]["message"]
        editor.heard.clear()
        (folder / "k.py").write_text(BROKEN)
        editor.open("k.py")
        editor.until_idle()
        assert any(a["isPreferred"] for a in editor.actions("k.py"))


def test_a_command_runs_in_place_of_the_file(folder: Path) -> None:  # noqa: F811
    (folder / "kernels.py").write_text(HELPER)
    test = (
        HELPER.split("def double")[0]
        + "from kernels import double\n\ndef test_it():\n    kernel = "
        + (
            "pl.kernel(double, out_type=jax.ShapeDtypeStruct((128,), jnp.float32), mesh=plgpu.Mesh())\n"
            "    assert kernel(jnp.arange(128, dtype=jnp.float32))[3] == 6\n"
        )
    )
    (folder / "test_it.py").write_text(test)
    with client(folder, {"trust": True, "run": "pytest -q test_it.py"}) as editor:
        editor.open("kernels.py")
        editor.until_idle()
        [fix] = editor.actions("kernels.py", only=["quickfix"])
        assert fix["isPreferred"]
        assert editor.applied(fix)["kernels.py"] == HELPER.replace("return x", "o_ref[...] = x")


def test_a_function_is_called_in_the_files_that_define_it(folder: Path) -> None:  # noqa: F811
    called = HELPER + "def run(x):\n    return pl.kernel(double, out_type=jax.typeof(x), mesh=plgpu.Mesh())(x)\n"
    (folder / "called.py").write_text(called)
    (folder / "k.py").write_text(BROKEN)
    with client(folder, {"trust": True, "call": "run", "args": ["f32[128]"]}) as editor:
        for name in ("called.py", "k.py"):
            editor.open(name)
            editor.until_idle(name)
            [fix] = editor.actions(name, only=["quickfix"])
            assert fix["isPreferred"]
            said = [m["params"]["value"] for m in editor.heard if m["method"] == "$/progress"][-1]
            assert said == {"kind": "end", "message": "1 problem, 1 with a proven fix"}


# ---------------------------------------------------------------------- a real editor

NVIM = shutil.which(os.environ.get("NVIM", "nvim"))
SCRIPT = """
vim.lsp.config("mgpu_fix", {
  cmd = { PYTHON, "-m", "mgpu_fix", "lsp" },
  filetypes = { "python" },
  root_markers = { "pyproject.toml", ".git" },
  init_options = { trust = true },
})
vim.lsp.enable("mgpu_fix")
vim.cmd.edit("k.py")
vim.bo.filetype = "python"
local said = {}
local function tell() vim.fn.writefile({ vim.json.encode(said) }, "said.json") end
local ok, wrong = pcall(function()
  -- The first are not proven yet.
  assert(vim.wait(60000, function()
    local client = vim.lsp.get_clients({ bufnr = 0 })[1]
    if not client or #vim.diagnostic.get(0) == 0 then return false end
    local params = vim.lsp.util.make_range_params(0, client.offset_encoding)
    local d = vim.diagnostic.get(0)[1]
    params.range = { start = { line = d.lnum, character = 0 }, ["end"] = { line = d.lnum, character = 0 } }
    params.range["end"].character = 1000
    params.context = { diagnostics = {} }
    local answer = client:request_sync("textDocument/codeAction", params, 5000, 0)
    for _, action in ipairs(answer and answer.result or {}) do
      if action.isPreferred then return true end
    end
    return false
  end, 200), "no fix came")
  local d = vim.diagnostic.get(0)[1]
  said.diagnostic = { lnum = d.lnum, col = d.col, end_col = d.end_col, code = d.code, source = d.source }
  vim.api.nvim_win_set_cursor(0, { d.lnum + 1, d.col })
  local before = vim.api.nvim_buf_get_changedtick(0)
  vim.lsp.buf.code_action({ apply = true, filter = function(a) return a.isPreferred end })
  assert(vim.wait(10000, function() return vim.api.nvim_buf_get_changedtick(0) ~= before end, 50), "nothing changed")
  vim.cmd.write()
  assert(vim.wait(60000, function() return #vim.diagnostic.get(0) == 0 end, 200), "it still shows something")
end)
said.wrong = not ok and tostring(wrong) or nil
tell()
vim.cmd("qa!")
"""


def neovim_fits() -> bool:
    if NVIM is None:
        return False
    version = subprocess.run([NVIM, "--version"], capture_output=True, text=True, check=False).stdout.split()[1]
    return tuple(int(n) for n in version.lstrip("v").split("-")[0].split(".")) >= (0, 11)


@pytest.mark.skipif(not neovim_fits(), reason="no Neovim of 0.11 or newer; NVIM names one")
def test_neovim_shows_it_and_applies_what_apply_would(folder: Path, tmp_path: Path) -> None:  # noqa: F811
    assert NVIM
    text = BROKEN.replace("return x_ref", "s = '😋'; return x_ref")
    (folder / "pyproject.toml").write_text("")
    (folder / "k.py").write_text(text)
    expected = applied(folder / "k.py")
    (tmp_path / "script.lua").write_text(SCRIPT.replace("PYTHON", json.dumps(sys.executable)))
    command = [NVIM, "--clean", "--headless", "-l", str(tmp_path / "script.lua")]
    home = {name: str(tmp_path) for name in ("XDG_STATE_HOME", "XDG_DATA_HOME", "XDG_CONFIG_HOME")}
    subprocess.run(command, cwd=folder, env={**os.environ, **home}, timeout=180, check=True)
    said = json.loads((folder / "said.json").read_text())
    assert "wrong" not in said, said
    # Neovim counts bytes.
    column = len("    s = '😋'; ".encode())
    place = {"lnum": 7, "col": column, "end_col": column + len("return x_ref[...] * 2")}
    assert said["diagnostic"] == {**place, "code": "MGF401", "source": "mgpu-fix"}
    assert (folder / "k.py").read_text() == expected
    assert expected == text.replace("return x_ref", "o_ref[...] = x_ref")
