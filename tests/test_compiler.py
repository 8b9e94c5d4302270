"""Compiling kernels: what the compiler's words mean, and how its processes end. Needs no compiler."""

import ctypes
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from mgpu_fix.model import Failure, KernelCall, Observation, Resources, Span
from mgpu_fix.observe import compiler
from mgpu_fix.observe.compiler import Compiled, Compiler, Lowered, MissingError, Module, read, target, told
from mgpu_fix.report import json as json_report

ASSEMBLED = """\
ptxas warning : Registers are spilled to local memory in function 'k', 120 bytes spill stores, 40 bytes spill loads
ptxas info    : (C7510) Potential Performance Loss: wgmma.mma_async instructions are serialized due to a call in 'k'
ptxas info    : Compiling entry function 'kernel_mosaic_gpu_kernel' for 'sm_90a'
ptxas info    : Function properties for kernel_mosaic_gpu_kernel
    72 bytes stack frame, 120 bytes spill stores, 40 bytes spill loads
ptxas info    : Used 255 registers, used 2 barriers, 72 bytes cumulative stack size, 16 bytes smem
"""
LOGGED = """\
WARNING: All log messages before absl::InitializeLog() is called are written to STDERR
I0000 00:00:1.1    1 cudart_stub.cc:31] Could not find cuda drivers on your machine, GPU will not be used.
"""
PTXAS = "'gpu.binary' op ptxas exited with non-zero error code 65280, output: ptxas /tmp/a-1"


def test_what_a_kernel_takes_is_read_off_the_assembler() -> None:
    compiled = read("sm_90a", 0, ASSEMBLED + '\n{"ok": true, "shared": 1024}\n', LOGGED)
    loss = "Potential Performance Loss: wgmma.mma_async instructions are serialized due to a call in 'k'"
    assert compiled == Compiled("sm_90a", Resources("sm_90a", 255, 120, 1040, (loss,)))


@pytest.mark.parametrize(
    ("said", "words", "place"),
    [
        (
            f"loc(\"/k.py\":14:4): error: {PTXAS}, line 1; error   : Instruction 'wgmma.fence' not supported\n"
            "ptxas /tmp/a-1, line 9; error   : another\n",
            "ptxas: Instruction 'wgmma.fence' not supported",
            ("/k.py", 14, 4),
        ),
        (
            'loc("run_scoped:"("run_scoped"("kernel"("/k.py":20:17 to :71)))): error: \'nvvm.wgmma\' op is wrong\n',
            "'nvvm.wgmma' op is wrong",
            ("/k.py", 20, 17),
        ),
        ('loc("-":1:1): error: no such op\n', "no such op", None),
        ("something else\n", "something else", None),
        ("", "the compiler refuses it", None),
    ],
)
def test_a_refusal_has_one_line_and_the_place_that_it_names(
    said: str, words: str, place: tuple[str, int, int] | None
) -> None:
    assert read("sm_90a", 0, '{"ok": false}\n', LOGGED + said) == Compiled("sm_90a", refusal=words, place=place)


@pytest.mark.parametrize(
    ("said", "words"),
    [
        (
            "LLVM ERROR: Cannot select: intrinsic %llvm.nvvm.tcgen05.commit\n",
            "LLVM ERROR: Cannot select: intrinsic %llvm.nvvm.tcgen05.commit",
        ),
        (
            "F0000 00:00:1.1 1 load.cc:29] no libdevice\n*** Check failure stack trace: ***\n    @  0x7f  f()\n",
            "no libdevice",
        ),
        ("", "signal 6 ended the compiler"),
    ],
)
def test_an_abort_is_a_refusal_with_its_reason(said: str, words: str) -> None:
    assert read("sm_90a", -signal.SIGABRT, "", LOGGED + said) == Compiled("sm_90a", refusal=words)


@pytest.mark.parametrize(
    ("code", "out"),
    [
        (-signal.SIGKILL, ""),
        (-signal.SIGALRM, ""),
        (0, '{"unusable": "the compiler fails and does not say why"}\n'),
        (0, '{"driver": true}\n'),
        (0, "half a li"),
        (0, ""),
    ],
)
def test_what_is_not_the_kernels_fault_is_none(code: int, out: str) -> None:
    compiled = read("sm_90a", code, out, LOGGED)
    assert (compiled.resources, compiled.refusal) == (None, "")
    assert compiled.unknown


@pytest.mark.parametrize(
    ("module", "arch"),
    [
        (b"\0tcgen05.alloc.cta_group::1.sync.aligned.shared::cta.b32 [$0], $1;\0", "sm_100a"),
        (b"\0wgmma.fence.sync.aligned;\0", "sm_90a"),
        # Names of the user's are in a module, too.
        (b"\0/home/me/tcgen05.py\0tcgen05_kernel\0my.tcgen05.store\0", "sm_90a"),
    ],
)
def test_the_target_is_what_the_instructions_need(module: bytes, arch: str) -> None:
    assert target(module) == arch


def call(number: int, failures: tuple[int, ...] = ()) -> KernelCall:
    return KernelCall("k", "plgpu.kernel", Span("/k.py", 3), (), (), "run", failures=failures, number=number)


def test_a_refused_kernel_stops_at_compile_and_the_others_have_figures() -> None:
    seen = Observation("ok", (call(0), call(1, (0,)), call(2), call(3)), (Failure("E", "m", "trace"),), jax="0.12.0.1")
    small, large = Resources("sm_90a", 10, 0, 512, ("slow",)), Resources("sm_90a", 8, 4, 1024)
    compiled = {
        "a": Compiled("sm_90a", small),
        "b": Compiled("sm_90a", large),
        "c": Compiled("sm_90a", refusal="no", place=("/k.py", 9, 5)),
        "d": Compiled("sm_90a", unknown="it was killed"),
    }
    lowered = {0: Lowered(("a", "b")), 1: Lowered(("a", "c"), caught=True), 2: Lowered(("a", "d"))}
    after = told(seen, lowered, compiled)
    assert after.calls[0].resources == Resources("sm_90a", 10, 4, 1024, ("slow",))
    assert (after.calls[1].stage, after.calls[1].failures, after.calls[1].resources) == ("compile", (0, 1), None)
    assert (after.calls[2].stage, after.calls[2].resources, after.calls[2].uncompiled) == ("run", None, "it was killed")
    assert after.calls[3] == seen.calls[3]
    failure = after.failures[1]
    assert (failure.type, failure.stage, failure.kernel, failure.span) == (
        "CompileError",
        "compile",
        "k",
        Span("/k.py", 9, 5, 9, 5),
    )
    assert (failure.message, failure.caught, failure.jax) == ("no (compiling for sm_90a)", True, "0.12.0.1")
    assert json_report.schema()["$defs"]["resources"]["required"] == list(json.loads(json_report.dump(vars(small))))


# ---------------------------------------------------------------------- processes

WORKER = """\
import os, pathlib, sys, time
module = pathlib.Path(sys.argv[-1]).read_text()
with open(os.environ["STARTED"], "a") as started:
    print(os.getpid(), file=started, flush=True)
if module == "hangs":
    time.sleep(600)
if module == "aborts":
    os.write(2, b"LLVM ERROR: Cannot select\\n")
    os.abort()
print("ptxas info : Used 8 registers")
print('{"ok": false}' if module == "refused" else '{"ok": true, "shared": 0}')
"""


@pytest.fixture
def scripted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Compiler:
    """A compiler whose processes do as the module says."""
    worker = tmp_path / "worker.py"
    worker.write_text(WORKER)
    monkeypatch.setattr(compiler, "_WORKER", worker)
    monkeypatch.setattr(compiler, "_plugin", lambda jax: (tmp_path, tmp_path, tmp_path))
    monkeypatch.setattr(compiler, "_stub", lambda folder: tmp_path)
    monkeypatch.setenv("STARTED", str(tmp_path / "started"))
    return Compiler(tmp_path, "0.12.0.1")


def module(tmp_path: Path, text: str) -> Module:
    path = tmp_path / f"{text}.module"
    path.write_text(text)
    return Module(path, text)


def started(tmp_path: Path) -> list[int]:
    return [int(line) for line in (tmp_path / "started").read_text().split()]


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


linux = pytest.mark.skipif(sys.platform != "linux", reason="compiles happen on Linux only")


@linux
def test_each_compile_is_a_process_whose_end_is_a_verdict(scripted: Compiler, tmp_path: Path) -> None:
    modules = [module(tmp_path, text) for text in ("fine", "aborts", "refused")]
    compiled = scripted.compile(modules, "", 30)
    assert compiled["fine"].resources == Resources("sm_90a", 8)
    assert compiled["aborts"].refusal == "LLVM ERROR: Cannot select"
    assert compiled["refused"].resources is None
    assert scripted.has_compiled("sm_90a")
    assert not scripted.has_compiled("sm_100a")
    assert len(started(tmp_path)) == 3


@linux
def test_the_same_code_is_compiled_once_for_each_gpu_and_a_refusal_again(scripted: Compiler, tmp_path: Path) -> None:
    modules = [module(tmp_path, text) for text in ("fine", "refused")]
    first = scripted.compile(modules, "", 30)
    assert scripted.compile(modules, "sm_90a", 30) == first
    assert len(started(tmp_path)) == 3
    scripted.compile(modules[:1], "sm_100a", 30)
    assert len(started(tmp_path)) == 4


@linux
def test_a_compile_that_hangs_is_ended_and_blames_nothing(scripted: Compiler, tmp_path: Path) -> None:
    compiled = scripted.compile([module(tmp_path, "hangs")], "", 1)["hangs"]
    assert (compiled.refusal, compiled.unknown) == ("", "it was not compiled within 1 s; --timeout gives it more")
    assert not alive(*started(tmp_path))


@linux
def test_an_interrupt_ends_the_compiles_under_way(
    scripted: Compiler, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(seconds: float) -> None:
        while not (tmp_path / "started").exists() or not started(tmp_path):
            pass
        raise KeyboardInterrupt

    monkeypatch.setattr(time, "sleep", interrupted)
    with pytest.raises(KeyboardInterrupt):
        scripted.compile([module(tmp_path, "hangs")], "", 60)
    assert not alive(*started(tmp_path))


# ---------------------------------------------------------------------- the stand-in for the driver


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache" / "mgpu-fix"


needs_cc = pytest.mark.skipif(
    sys.platform != "linux" or not any(map(shutil.which, ("cc", "gcc", "clang"))), reason="there is no C compiler here"
)


@needs_cc
def test_the_stand_in_is_built_once_and_is_the_users_alone(cache: Path, tmp_path: Path) -> None:
    built = compiler._stub(tmp_path)
    assert built.parent == cache
    assert (cache.stat().st_mode & 0o777, built.stat().st_mode & 0o777) == (0o700, 0o700)
    assert list(cache.iterdir()) == [built]
    when = built.stat().st_mtime_ns
    assert compiler._stub(tmp_path) == built
    assert built.stat().st_mtime_ns == when
    exported = subprocess.run([sys.executable, "-c", LOADS, str(built)], capture_output=True, text=True, check=True)
    assert exported.stdout == "0 9\n"


LOADS = """\
import ctypes, sys
stub = ctypes.CDLL(sys.argv[1], mode=ctypes.RTLD_GLOBAL)
ctypes.c_int.in_dll(stub, "mgpu_fix_major").value = 9
value = ctypes.c_int()
print(ctypes.CDLL("libcuda.so.1").cuDeviceGetAttribute(ctypes.byref(value), 75, 0), value.value)
"""


@needs_cc
def test_what_others_can_write_to_is_not_loaded(cache: Path, tmp_path: Path) -> None:
    built = compiler._stub(tmp_path)
    built.write_bytes(b"planted")
    built.chmod(0o777)
    assert compiler._stub(tmp_path).read_bytes().startswith(b"\x7fELF")
    cache.chmod(0o777)
    assert compiler._stub(tmp_path).parent == tmp_path


@needs_cc
def test_without_a_cache_it_is_built_for_this_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", os.devnull)
    assert compiler._stub(tmp_path).parent == tmp_path


@needs_cc
def test_a_c_compiler_that_fails_says_why_and_leaves_nothing(
    cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CC", "false")
    with pytest.raises(
        MissingError, match="false cannot build the stand-in for the CUDA driver: it ends with status 1"
    ):
        compiler._stub(tmp_path)
    assert list(cache.iterdir()) == []


@linux
def test_without_a_c_compiler_it_says_what_to_install(
    cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("CC", raising=False)
    with pytest.raises(MissingError, match="install gcc or clang"):
        compiler._stub(tmp_path)


PLUGIN = r"""
#include <dlfcn.h>
#include <stdio.h>
#include <unistd.h>

static int known;
__attribute__((visibility("hidden"))) void LLVMInitializeNVPTXTargetInfo(void) { known |= 1; }
__attribute__((visibility("hidden"))) void LLVMInitializeNVPTXTarget(void) { known |= 2; }
__attribute__((visibility("hidden"))) void LLVMInitializeNVPTXTargetMC(void) { known |= 4; }

void *MosaicGpuCompile(const char *module, int size) {
  void *driver = dlopen("libcuda.so.1", RTLD_NOW);
  int (*attribute)(int *, int, int) = dlsym(driver, "cuDeviceGetAttribute");
  int (*launch)(void *, int, int) = dlsym(driver, "cuFuncSetAttribute");
  int major = 0;
  attribute(&major, 75, 0);
  switch (*module) {
    case 'h': for (;;) sleep(1);
    case 's': return 0;
    case 'r': fprintf(stderr, "loc(\"/k.py\":3:5): error: it will not\n"); return 0;
    case 'o': if (known != 7) return 0;
  }
  printf("ptxas info : Used %d registers\n", major);
  launch(0, 8, 4096);
  return module == 0 ? 0 : driver;
}
"""


@pytest.fixture
def built(cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Compiler:
    """The real worker and stand-in, with a library in place of JAX's."""
    (tmp_path / "plugin.c").write_text(PLUGIN)
    library = tmp_path / "plugin.so"
    cc = next(filter(shutil.which, ("cc", "gcc", "clang")))
    subprocess.run([cc, "-shared", "-fPIC", "-o", library, tmp_path / "plugin.c", "-ldl"], check=True)
    monkeypatch.setattr(compiler, "_plugin", lambda jax: (library, tmp_path, tmp_path))
    return Compiler(tmp_path, "0.12.0.1")


def has_driver() -> bool:
    try:
        ctypes.CDLL("libcuda.so.1")
    except OSError:
        return False
    return True


needs_no_driver = pytest.mark.skipif(has_driver(), reason="there is a CUDA driver here")


@needs_cc
@needs_no_driver
@pytest.mark.parametrize(
    ("text", "arch", "expected"),
    [
        ("fine", "sm_90a", Compiled("sm_90a", Resources("sm_90a", 9, 0, 4096))),
        ("fine", "sm_100a", Compiled("sm_100a", Resources("sm_100a", 10, 0, 4096))),
        ("refused", "sm_90a", Compiled("sm_90a", refusal="it will not", place=("/k.py", 3, 5))),
        ("silent", "sm_90a", Compiled("sm_90a", unknown="the compiler fails and does not say why")),
        # As on JAX 0.10.2, where LLVM must be told of NVIDIA's GPUs first.
        ("old", "sm_90a", Compiled("sm_90a", Resources("sm_90a", 9, 0, 4096))),
    ],
)
def test_the_compiler_finds_the_stand_in_and_what_it_says_is_told(
    built: Compiler, tmp_path: Path, text: str, arch: str, expected: Compiled
) -> None:
    assert built.compile([module(tmp_path, text)], arch, 30) == {text: expected}


@needs_cc
@needs_no_driver
def test_a_worker_that_nobody_waits_for_ends_by_itself(built: Compiler, tmp_path: Path) -> None:
    built.find()
    process = built._start(module(tmp_path, "hangs"), "sm_90a", 1).process
    assert process.wait(30) == -signal.SIGALRM


@needs_cc
@needs_no_driver
def test_beside_a_driver_nothing_is_compiled(built: Compiler, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "libcuda.so.1").symlink_to(compiler._stub(tmp_path))
    monkeypatch.setenv("LD_LIBRARY_PATH", str(tmp_path))
    compiled = built.compile([module(tmp_path, "fine")], "sm_90a", 30)
    assert compiled == {"fine": Compiled("sm_90a", unknown=compiler.DRIVER)}


class Distribution:
    def __init__(self, version: str, folder: Path) -> None:
        self.version, self.folder = version, folder

    def locate_file(self, path: str) -> Path:
        return self.folder / path


@pytest.mark.parametrize(
    ("installed", "found"),
    [
        ({}, "JAX's CUDA plugin is not installed; pip install 'mgpu-fix[compile]'"),
        ({13: "0.11.2"}, "JAX is 0.12.0.1 and its CUDA plugin 0.11.2; pip install 'mgpu-fix[compile]'"),
        ({13: "0.12.0.1"}, "xla_cuda13"),
        ({12: "0.12.0.1", 13: "0.12.0.1"}, "xla_cuda13"),
        ({12: "0.12.0.1", 13: "0.11.2"}, "xla_cuda12"),
    ],
)
def test_the_plugin_is_that_of_the_same_jax(
    installed: dict[int, str], found: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def distribution(name: str) -> Distribution:
        number = int(name.removeprefix("jax-cuda")[:2])
        if number not in installed:
            raise compiler.PackageNotFoundError
        return Distribution(installed[number], tmp_path)

    monkeypatch.setattr(compiler, "distribution", distribution)
    try:
        plugin, runtime, tools = compiler._plugin("0.12.0.1")
    except MissingError as e:
        assert str(e) == found
    else:
        assert plugin == tmp_path / "jax_plugins" / found / "xla_cuda_plugin.so"
        assert runtime.name == "libmosaic_gpu_runtime.so"
        assert tools == tmp_path / "nvidia" / ("cu13" if found.endswith("13") else "cuda_nvcc")
