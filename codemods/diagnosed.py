"""Failures that are recognised and explained, and for which no fix is built yet."""

from collections.abc import Iterable

from mgpu_fix.catalogue import NoFix, Rule, Signature
from mgpu_fix.model import Candidate, Failure
from mgpu_fix.source import SourceFile

_ALL = "0.10.2 to 0.12.0"


class _Diagnosed(Rule):
    by_hand: str
    repairs = False

    def candidates(self, failure: Failure, source: SourceFile) -> Iterable[Candidate]:
        """Always raises NoFix, with what to do by hand."""
        raise NoFix(f"no fix is built yet; by hand: {self.by_hand}")

    @property
    def page(self) -> str:
        """The class docstring, and that nothing is changed."""
        return f"{super().page}\n\n## Fix safety\n\nNo fix is built yet: the failure is named and nothing is changed."


class TmemAccess(_Diagnosed):
    """Tensor memory (TMEM) is read or written with `ref[...]`, which only works for GMEM and SMEM.

    ## What it means

    Loads and stores of TMEM are asynchronous and have functions of their own.

    ## Why it happens

    Lane semantics say so; with Warpgroup semantics (the default from JAX 0.11.0) a store ends in "Expected the same
    number of in_tmem_layouts", and a load in a failed search for layouts.

    ## Example

    ```python
    tmem_ref[...] = value
    result = tmem_ref[...]
    ```

    ## Use instead

    ```python
    plgpu.async_store_tmem(tmem_ref, value)
    plgpu.commit_tmem()
    result = plgpu.async_load_tmem(tmem_ref)
    plgpu.wait_load_tmem()  # before the memory is used again
    ```

    The value needs a layout that fits TMEM, e.g. `plgpu.load(x_ref, layout=plgpu.Layout.TCGEN05, optimized=False)`.
    """

    code = "MGF503"
    name = "tmem-access"
    jax = _ALL
    by_hand = "use plgpu.async_store_tmem with plgpu.commit_tmem, and plgpu.async_load_tmem"
    signatures = (
        Signature("RuntimeError", r"^(Stores to|Loads from) TMEM are asynchronous operations"),
        Signature("ValueError", r"^Expected the same number of in_tmem_layouts"),
    )


class WgmmaOperandTransforms(_Diagnosed):
    """An operand of `plgpu.wgmma` lies in SMEM without the tiling and swizzling that the tensor core reads.

    ## What it means

    WGMMA reads SMEM in tiles whose rows are permuted (swizzled). The Ref has to be declared so.

    ## Why it happens

    Lane semantics (the default before JAX 0.11.0) take the layout from the declaration. Warpgroup semantics find it by
    themselves.

    ## Example

    ```python
    scratch_types=[plgpu.SMEM((64, 64), jnp.float16)]
    ```

    ## Use instead

    ```python
    transforms = (plgpu.TilingTransform((8, 64)), plgpu.SwizzleTransform(128))  # 64 = 128 bytes / 2 bytes
    scratch_types=[plgpu.SMEM((64, 64), jnp.float16, transforms=transforms)]
    ```
    """

    code = "MGF506"
    name = "wgmma-operand-transforms"
    jax = "0.10.2, and newer with Lane semantics"
    by_hand = "declare the operand with transforms=(TilingTransform((8, 128 // itemsize)), SwizzleTransform(128))"
    signatures = (Signature("ValueError", r"^When WGMMA \w+ is passed in as a ref, it must be transformed by"),)


RULES = (
    TmemAccess(),
    WgmmaOperandTransforms(),
)
