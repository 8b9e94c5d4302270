"""What docs/ci.md tells people to run does what it says."""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest
from test_formats import by_line, by_region
from test_repair_live import BROKEN, FIXED

pytestmark = pytest.mark.live

TEXT = (Path(__file__).parent.parent / "docs" / "ci.md").read_text(encoding="utf-8")
COMMANDS = re.findall(r"<!-- test: fails -->\n```sh\n(.*?)\n```", TEXT, re.S)


def run(command: str, folder: Path) -> subprocess.CompletedProcess[str]:
    (folder / "kernels.py").write_text(BROKEN)
    script = command.replace("mgpu-fix", f"'{sys.executable}' -m mgpu_fix", 1)
    return subprocess.run(script, shell=True, cwd=folder, capture_output=True, text=True, check=False)


@pytest.mark.parametrize("command", COMMANDS)
def test_a_command_of_the_page_fails_where_a_kernel_can_be_repaired_and_writes_none(
    command: str, tmp_path: Path
) -> None:
    ran = run(command, tmp_path)
    assert ran.returncode == 1, ran.stderr
    assert (tmp_path / "kernels.py").read_text() == BROKEN
    if "github" in command:
        assert ran.stdout.startswith("::warning file=kernels.py,line=8,")
    if "rdjson" in command:
        found = json.loads((tmp_path / "mgpu-fix.json").read_text())["diagnostics"]
        assert by_line(BROKEN, [s for d in found for s in d["suggestions"]]) == FIXED
    if "--diff" in command:
        subprocess.run(["git", "apply", "kernels.patch"], cwd=tmp_path, check=True)
        assert (tmp_path / "kernels.py").read_text() == FIXED


def test_the_fix_in_sarif_is_what_apply_writes(tmp_path: Path) -> None:
    ran = run("mgpu-fix apply --check --output-format sarif kernels.py", tmp_path)
    [run_] = json.loads(ran.stdout)["runs"]
    [change] = run_["results"][0]["fixes"][0]["artifactChanges"]
    assert by_region(BROKEN, change["replacements"]) == FIXED


def test_there_are_commands_to_try() -> None:
    assert len(COMMANDS) == 3
