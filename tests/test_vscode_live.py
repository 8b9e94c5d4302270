"""The extension for VS Code: it builds and packages from what the repository holds, and its own tests pass."""

import json
import os
import re
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

pytestmark = pytest.mark.live

REPOSITORY = Path(__file__).parents[1]
#: what npm says where there is no registry to be had
NO_REGISTRY = re.compile(r"code (ENOTFOUND|EAI_AGAIN|ECONN\w+|ETIMEDOUT|EIDLETIMEOUT|ENETUNREACH|E40[134]|E5\d\d)")

#: what the bundle may ask for: Node's own modules and VS Code
BUILTIN = {"child_process", "crypto", "fs", "fs/promises", "net", "os", "path", "readline", "url", "util", "vscode"}


def npm(folder: Path, *words: str) -> "subprocess.CompletedProcess[str]":
    command = [str(shutil.which("npm")), *words]
    env = {**os.environ, "MGPU_FIX_PYTHON": sys.executable}
    return subprocess.run(command, cwd=folder, env=env, capture_output=True, text=True, timeout=300, check=False)


@pytest.fixture(scope="module")
def extension(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The extension's folder, as a fresh clone has it, with what it is built with."""
    node = shutil.which("node")
    if node is None or shutil.which("npm") is None:
        pytest.skip("no Node here")
    version = subprocess.run([node, "--version"], capture_output=True, text=True, check=True).stdout
    if int(version[1:].split(".")[0]) < 20:
        pytest.skip(f"Node is {version.strip()}; 20 is needed")
    folder = tmp_path_factory.mktemp("clone") / "vscode"
    built = shutil.ignore_patterns("node_modules", "dist", "*.vsix")
    shutil.copytree(REPOSITORY / "editors" / "vscode", folder, ignore=built)
    given = npm(folder, "install", "--no-audit", "--no-fund", "--fetch-retries=0")
    if given.returncode and NO_REGISTRY.search(given.stderr):
        pytest.skip("no npm registry here")
    assert given.returncode == 0, given.stderr
    return folder


def test_two_commands_make_a_package_that_holds_the_bundle(extension: Path) -> None:
    ran = npm(extension, "run", "package")
    assert ran.returncode == 0, ran.stdout + ran.stderr
    with zipfile.ZipFile(extension / "mgpu-fix.vsix") as package:
        files = {name for name in package.namelist() if name.startswith("extension/")}
        manifest = json.loads(package.read("extension/package.json"))
        bundle = package.read("extension/dist/extension.js").decode()
    assert files == {"extension/package.json", "extension/readme.md", "extension/dist/extension.js"}
    assert manifest["main"] == "./dist/extension.js"
    assert set(re.findall(r'require\("(?:node:)?([^"]+)"\)', bundle)) <= BUILTIN
    assert not list(extension.glob("package-lock.json"))


def test_its_own_tests_pass_with_this_server(extension: Path) -> None:
    pytest.importorskip("pygls", reason="the language server is not installed")
    ran = npm(extension, "test")
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert "skipped 0" in ran.stdout
