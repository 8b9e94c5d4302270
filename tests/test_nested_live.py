"""Warp-level regions in warp-level regions that are not to be merged, since that would compute something else."""

from pathlib import Path

import pytest
from test_regions_live import repaired

from mgpu_fix.observe import Observer

pytestmark = pytest.mark.live

HEAD = """
FOUR = jax.ShapeDtypeStruct((4,), jnp.float32)
"""

LEFT = {
    "each warp for each warp": """
@plgpu.kernel(out_type=jax.ShapeDtypeStruct((4, 4), jnp.float32))
def kernel(x_ref, o_ref):
    @plgpu.warp_map
    def _(w):
        @plgpu.warp_map
        def _(v):
            o_ref[w, v] = x_ref[w] * x_ref[v]
kernel(x)""",
    "four times": """
@plgpu.kernel(out_type=FOUR)
def kernel(x_ref, o_ref):
    @plgpu.warp_map
    def _(w):
        o_ref[w] = x_ref[w]
        @plgpu.warp_map
        def _(v):
            o_ref[v] = o_ref[v] + 1
kernel(x)""",
    "under a condition, after a copy": """
@plgpu.kernel(out_type=FOUR, scratch_types=(plgpu.SMEM((128,), jnp.float32), plgpu.Barrier()))
def kernel(x_ref, o_ref, smem, barrier):
    @plgpu.warp_map
    def _(w):
        @pl.when(w == 0)
        def _():
            plgpu.copy_gmem_to_smem(x_ref, smem, barrier)
            plgpu.barrier_wait(barrier)
            @plgpu.warp_map
            def _(v):
                o_ref[v] = x_ref[v] + 1
kernel(x)""",
    "names of both": """
@plgpu.kernel(out_type=(FOUR, FOUR))
def kernel(x_ref, o_ref, p_ref):
    @plgpu.warp_map
    def _(w):
        at = w
        @plgpu.warp_map
        def _(v):
            at = 3 - v
            o_ref[at] = x_ref[at] + 1
        p_ref[at] = x_ref[at]
kernel(x)""",
    "a helper": """
def add(x_ref, o_ref):
    @plgpu.warp_map
    def _(v):
        o_ref[v] = x_ref[v] + 1
@plgpu.kernel(out_type=FOUR)
def kernel(x_ref, o_ref):
    @plgpu.warp_map
    def _(w):
        add(x_ref, o_ref)
kernel(x)""",
    "memory": """
@plgpu.kernel(out_type=FOUR)
def kernel(x_ref, o_ref):
    @plgpu.warp_map
    def _(w):
        def body(smem):
            o_ref[w] = x_ref[w]
        pl.run_scoped(body, plgpu.SMEM((128,), jnp.float32))
kernel(x)""",
}


@pytest.mark.parametrize("text", LEFT.values(), ids=LEFT)
def test_it_is_left(text: str, observer: Observer, tmp_path: Path) -> None:
    outcome, after = repaired(HEAD + text, observer, tmp_path)
    assert not outcome.fixes
    assert after.endswith(text + "\n")
    assert all(item.reason for item in outcome.remaining)
    assert {item.code for item in outcome.remaining} == {"MGF102"}
