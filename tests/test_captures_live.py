"""Kernels that close over arrays: what becomes of them, and what is left alone."""

from pathlib import Path

import pytest
from test_regions_live import HEAD, repaired

from mgpu_fix.catalogue import load
from mgpu_fix.engine import Engine
from mgpu_fix.observe import Observer, Program
from mgpu_fix.source import SourceFile

pytestmark = pytest.mark.live

KERNEL = """
W = jnp.arange(128, dtype=jnp.float32)
@plgpu.kernel(out_type=F)
def kernel(x_ref, o_ref):
    o_ref[...] = x_ref[...] * W
"""

LEFT = {
    "an option that another call leaves out": """
def attend(q, mask=None):
    @plgpu.kernel(out_type=F)
    def kernel(q_ref, o_ref):
        v = q_ref[...]
        if mask is not None:
            v = v * mask
        o_ref[...] = v
    return kernel(q)
attend(x, x)""",
    "an array that is not always there": """
def attend(q, causal):
    if causal:
        mask = x * 2
    @plgpu.kernel(out_type=F)
    def kernel(q_ref, o_ref):
        o_ref[...] = q_ref[...] * mask if causal else q_ref[...]
    return kernel(q)
attend(x, True)""",
    "a kernel of the module that a function makes": """
W = jnp.arange(128, dtype=jnp.float32)
def make():
    global kernel
    def body(x_ref, o_ref):
        o_ref[...] = x_ref[...] * W
    kernel = plgpu.kernel(body, out_type=F)
make()
kernel(x)""",
    "a body that asks what it closes over": """
def scaled(q, s):
    @plgpu.kernel(out_type=F)
    def kernel(q_ref, o_ref):
        o_ref[...] = q_ref[...] * (s if isinstance(s, float) else s[...])
    return kernel(q)
scaled(x, x)""",
    "what is a number of Python's elsewhere": """
def scaled(q, s):
    @plgpu.kernel(out_type=F)
    def kernel(q_ref, o_ref):
        o_ref[...] = q_ref[...] * s
    return kernel(q)
jax.jit(scaled)(x, 2.5)
def half(q):
    return scaled(q, 2.5)""",
    "an index below zero, which a Ref does not know": """
W = jnp.arange(128, dtype=jnp.float32)
LAST = -1
@plgpu.kernel(out_type=F)
def kernel(x_ref, o_ref):
    o_ref[...] = x_ref[...] + W[LAST]
kernel(x)""",
    "an index that may be below zero": """
W = jnp.arange(128, dtype=jnp.float32)
@plgpu.kernel(out_type=F, grid=(2,), grid_names=("i",))
def kernel(x_ref, o_ref):
    o_ref[...] = x_ref[...] + W[lax.axis_index("i") - 1]
kernel(x)""",
    "a body that others may make kernels of": """
__all__ = ["body", "kernel"]
W = jnp.arange(128, dtype=jnp.float32)
def body(x_ref, o_ref):
    o_ref[...] = x_ref[...] * W
kernel = plgpu.kernel(body, out_type=F)
kernel(x)""",
    "a kernel that is made of what may change": """
import functools
class Model:
    scale = 2.0
    def make(self, w):
        def body(scale, x_ref, o_ref):
            o_ref[...] = x_ref[...] * w * scale
        return plgpu.kernel(functools.partial(body, self.scale), out_type=F)
model = Model()
kernel = model.make(x)
model.scale = 3.0
kernel(x)""",
    "a kernel that is asked for more than its result": """
W = jnp.arange(128, dtype=jnp.float32)
@jax.jit
@plgpu.kernel(out_type=F)
def kernel(x_ref, o_ref):
    o_ref[...] = x_ref[...] * W
kernel(x)
kernel.lower""",
    "a kernel that is put into a table": """
KERNELS = {}
def register(kernel):
    KERNELS["scale"] = kernel
    return kernel
W = jnp.arange(128, dtype=jnp.float32)
@register
@plgpu.kernel(out_type=F)
def kernel(x_ref, o_ref):
    o_ref[...] = x_ref[...] * W
KERNELS["scale"](x)""",
    "a kernel that is made on one line with its condition": """
W = jnp.arange(128, dtype=jnp.float32)
def body(x_ref, o_ref):
    o_ref[...] = x_ref[...] * W
if True: kernel = plgpu.kernel(body, out_type=F)
kernel(x)""",
    "a property": """
class Config:
    @property
    def table(self):
        return x * 2
config = Config()
@plgpu.kernel(out_type=F)
def kernel(x_ref, o_ref):
    o_ref[...] = x_ref[...] * config.table
kernel(x)""",
    "an element that is chosen in the body": """
TABLES = [jnp.arange(128, dtype=jnp.float32), x]
@plgpu.kernel(out_type=F)
def kernel(x_ref, o_ref):
    for table in TABLES:
        o_ref[...] = x_ref[...] * table
kernel(x)""",
    "a function outside of the body": """
W = jnp.arange(128, dtype=jnp.float32)
def scaled(value):
    return value * W
@plgpu.kernel(out_type=F)
def kernel(x_ref, o_ref):
    o_ref[...] = scaled(x_ref[...])
kernel(x)""",
    "NumPy in the body": """
W = np.arange(128, dtype=np.float32)
@plgpu.kernel(out_type=F)
def kernel(x_ref, o_ref):
    o_ref[...] = x_ref[...] * np.exp(-W)
kernel(x)""",
    "NumPy in the body, and the array itself": """
W = np.arange(128, dtype=np.float32)
@plgpu.kernel(out_type=F)
def kernel(x_ref, o_ref):
    o_ref[...] = x_ref[...] * np.exp(-W) + W
kernel(x)""",
    "the name means something else where the kernel is called": """
W = jnp.arange(128, dtype=jnp.float32)
def body(x_ref, o_ref):
    o_ref[...] = x_ref[...] * W
def run(x):
    W = 3
    return plgpu.kernel(body, out_type=F)(x + W)
run(x)""",
    "a loop makes several kernels": """
kernels = []
for n in (128, 256):
    w = jnp.ones(n)
    @plgpu.kernel(out_type=jax.ShapeDtypeStruct((n,), jnp.float32))
    def kernel(x_ref, o_ref):
        o_ref[...] = x_ref[...] * w
    kernels.append(kernel)
kernels[-1](wide)""",
    "two kernels of one name": """
W = jnp.arange(128, dtype=jnp.float32)
@plgpu.kernel(out_type=F)
def kernel(x_ref, o_ref):
    o_ref[...] = x_ref[...] * W
first = kernel
@plgpu.kernel(out_type=F)
def kernel(x_ref, o_ref):
    o_ref[...] = x_ref[...] + W
kernel(first(x))""",
    "a declaration that would be read later": """
W = jnp.arange(128, dtype=jnp.float32)
def body(x_ref, o_ref):
    o_ref[...] = x_ref[...] * W
n = 128
run = jax.jit(plgpu.kernel(body, out_type=jax.ShapeDtypeStruct((n,), jnp.float32)))
n = 256
run(x)""",
    "spread arguments": """
def run(x, w):
    def body(x_ref, o_ref):
        o_ref[...] = x_ref[...] * w
    args = (x,)
    return plgpu.kernel(body, out_type=F)(*args)
run(x, x + 1)""",
    "another decorator makes the kernel": """
def twice(**kwargs):
    def decorate(body):
        kernel = plgpu.kernel(body, **kwargs)
        return lambda x: kernel(kernel(x))
    return decorate
W = jnp.arange(128, dtype=jnp.float32)
@twice(out_type=F)
def kernel(x_ref, o_ref):
    o_ref[...] = x_ref[...] * W
kernel(x)""",
    "the kernel is one of two": """
W = jnp.arange(128, dtype=jnp.float32)
def body(x_ref, o_ref):
    o_ref[...] = x_ref[...] * W
kernel = plgpu.kernel(body, out_type=F) if len(W) else plgpu.kernel(body, out_type=F)
kernel(x)""",
    "an element that counts from the end": KERNEL.replace("* W", "* W[-1]") + "kernel(x)",
    "a reference that holds for its own arguments, which two outputs have in common": """
@plgpu.kernel(out_type=(F, F))
def kernel(x_ref, y_ref, a_ref, b_ref):
    return x_ref[...] * y_ref[...], y_ref[...] * y_ref[...]
def example_args():
    return x, x
def reference(x, y):
    return y * y, x * y""",
    "JAX's error is expected": KERNEL + "try:\n    kernel(x)\nexcept ValueError:\n    pass",
}

#: what must stand in the repaired program, and whether it takes numbers from a warp-level region to prove it
RIGHT = {
    "returned, too": (
        KERNEL.replace("o_ref[...] = x", "return x") + "kernel(x)",
        "def _kernel(x_ref, w_ref, o_ref):\n    o_ref[...] = x_ref[...] * w_ref[...]\n\n\ndef kernel(x):\n",
        False,
    ),
    "numbers of NumPy's, which JAX takes as they are": (
        """
S, N = np.array(3.0, np.float32), np.float32(2)
@plgpu.kernel(out_type=F)
def kernel(x_ref, o_ref):
    return x_ref[...] * S + N
kernel(x)""",
        "    o_ref[...] = x_ref[...] * S + N\n",
        False,
    ),
    "attributes, keys and elements": (
        """
class Layer:
    shift = jnp.linspace(0, 1, 128)
    def __init__(self, params, scales):
        self.params, self.scales = params, scales
    def __call__(self, x):
        def body(x_ref, o_ref):
            o_ref[...] = x_ref[...] * self.params["w"] + self.params["w"].shape[0] + self.scales[1] * Layer.shift
        return plgpu.kernel(body, out_type=F)(x)
Layer({"w": jnp.arange(128, dtype=jnp.float32), "b": x}, [x, x + 1])(x)""",
        "x_ref, w_ref, scales_ref, shift_ref, o_ref):\n            o_ref[...] = "
        'x_ref[...] * w_ref[...] + self.params["w"].shape[0] + scales_ref[...] * shift_ref[...]\n'
        '        return plgpu.kernel(body, out_type=F)(x, self.params["w"], self.scales[1], Layer.shift)\n',
        False,
    ),
    "mapped": (KERNEL + "jax.vmap(kernel)(jnp.stack([x, x + 1]))", "return _kernel(x, W)", False),
    "a name that is taken": (
        KERNEL.replace("x_ref", "w_ref") + "_kernel = 3\nkernel(x)",
        "def _kernel2(w_ref, w_ref2, o_ref):\n    o_ref[...] = w_ref[...] * w_ref2[...]\n\n\ndef kernel(w):\n"
        "    return _kernel2(w, W)\n",
        False,
    ),
    "a name that the kernel's declaration uses": (
        """
def make(x, w):
    def body(x_ref, o_ref):
        o_ref[...] = x_ref[...] * w
    return plgpu.kernel(body, out_type=jax.ShapeDtypeStruct(x.shape, x.dtype))
make(x, x + 1)(x)""",
        "return lambda x2: plgpu.kernel(body, out_type=jax.ShapeDtypeStruct(x.shape, x.dtype))(x2, w)",
        False,
    ),
    "called with several arrays": (
        """
def scaled(q, w):
    @plgpu.kernel(out_type=F)
    def kernel(q_ref, o_ref):
        o_ref[...] = q_ref[...] * w
    return kernel(q)
for i in range(5):
    scaled(x, x + i)""",
        "        o_ref[...] = q_ref[...] * w_ref[...]\n    return kernel(q, w)\n",
        False,
    ),
    "made for several arrays": (
        """
def make(w):
    @plgpu.kernel(out_type=F)
    def kernel(x_ref, o_ref):
        o_ref[...] = x_ref[...] * w
    return kernel
[kernel(x) for kernel in [make(x + i) for i in range(2)]]""",
        "    def kernel(x):\n        return _kernel(x, w)\n",
        False,
    ),
    "several numbers of one trace": (
        """
def scaled(q, s):
    def body(q_ref, o_ref):
        o_ref[...] = q_ref[...] * s
    return plgpu.kernel(body, out_type=F)(q)
jax.jit(lambda q, s: scaled(scaled(q, s), s + 1))(x, 2.5)""",
        "    return plgpu.kernel(body, out_type=F)(q, s)\n",
        False,
    ),
    "two kernels": (
        KERNEL + KERNEL.replace("kernel(x_ref", "other(x_ref") + "other(kernel(x))",
        "def other(x):\n    return _other(x, W)",
        False,
    ),
    "what is known before the kernel runs": (
        KERNEL.replace("* W", "* W * (len(W) + W.size)") + "kernel(x)",
        "* w_ref[...] * (len(W) + W.size)",
        False,
    ),
    "an array of pairs": (
        KERNEL.replace("x_ref[...] * W", "x_ref[0][...] * x_ref[1][...] + W") + "kernel((x, x))",
        "def kernel(x):\n    return _kernel(x, W)",
        False,
    ),
    "a table that one warp stores": (
        """
TABLE = np.arange(128, dtype=np.float32) ** 2
@plgpu.kernel(out_type=F)
def kernel(o_ref):
    @plgpu.warp_map
    def _(warp_id):
        @pl.when(warp_id == 0)
        def _():
            o_ref[...] = TABLE
kernel()""",
        "def _kernel(table_ref, o_ref):\n    o_ref[...] = table_ref[...]\n",
        True,
    ),
    "a table that one warp stores while another copies": (
        """
TABLE = np.arange(128, dtype=np.float32) ** 2
@plgpu.kernel(
    out_type=(F, F), scratch_types=(plgpu.SMEM((128,), jnp.float32), plgpu.Barrier()), compiler_params=WARPGROUP
)
def kernel(x_ref, o_ref, p_ref, smem, barrier):
    @plgpu.warp_map
    def _(warp_id):
        @pl.when(warp_id == 1)
        def _():
            o_ref[...] = TABLE
        @pl.when(warp_id == 0)
        def _():
            plgpu.copy_gmem_to_smem(x_ref, smem, barrier)
            plgpu.barrier_wait(barrier)
    p_ref[...] = smem[...]
kernel(x)""",
        "            @pl.loop(0, 128)\n            def _(i):\n                o_ref[i] = table_ref[i]\n",
        True,
    ),
}


@pytest.mark.parametrize("text", LEFT.values(), ids=LEFT)
def test_it_is_left(text: str, observer: Observer, tmp_path: Path) -> None:
    outcome, after = repaired(text, observer, tmp_path)
    assert not outcome.fixes
    assert after.endswith(text + "\n")
    assert all(item.reason for item in outcome.remaining)


@pytest.mark.parametrize(("text", "right", "warps"), RIGHT.values(), ids=RIGHT)
def test_it_becomes_what_is_right(text: str, right: str, warps: bool, observer: Observer, tmp_path: Path) -> None:
    outcome, after = repaired(text, observer, tmp_path)
    if warps and not observer.capabilities["warps"]:
        assert not outcome.fixes
        return
    assert right in after
    assert not outcome.remaining
    assert {f.verified_by.value for f in outcome.fixes if f.verified_by} == {"interpreter"}


def test_a_kernel_is_mended_where_it_stands(observer: Observer, tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text("import kernel, jax.numpy as jnp\nkernel.kernel(jnp.ones(128))\n")
    path = str(tmp_path / "kernel.py")
    source = SourceFile(path, (HEAD + KERNEL).encode())
    Path(path).write_bytes(source.data)
    program = Program(str(tmp_path / "program.py"))
    outcome = Engine(lambda texts, draws: observer.observe(program, texts, draws), load(), {path: source}).repair()
    assert not outcome.remaining
    assert "def kernel(x):\n    return _kernel(x, W)\n" in outcome.texts[path].text


def test_a_kernel_that_got_another_name_is_held_against_the_original(observer: Observer, tmp_path: Path) -> None:
    # The second kernel computes something else if its operand is not what it was.
    text = KERNEL + "kernel(x)\nassert float(kernel(x)[5]) != 0, 'compares'"
    outcome, _ = repaired(text, observer, tmp_path)
    assert [c.name for c in outcome.kernels] == ["_kernel"]
    assert [k.verified_by.value for k in outcome.kernels if k.verified_by] == ["interpreter"]
