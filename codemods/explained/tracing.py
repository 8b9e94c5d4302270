"""What a kernel cannot do while it is traced, nor with what it is given: MGF406 to MGF408."""

from mgpu_fix.catalogue import Signature

from .rule import Explained

_ALL = "0.10.2 to 0.12.0.1"


class SameRefTwice(Explained):
    """A kernel is given the same Ref for two of its parameters.

    ## What it means

    JAX follows what a kernel writes by the parameters that it writes to. Two of them for one piece of memory would make
    it miss some.

    ## Why it happens

    A Ref made by `jax.new_ref` is passed as input and output. It is raised where the kernel is called outside of `jit`.

    ## Example

    ```python
    ref = jax.new_ref(x)
    double(ref, ref)
    ```

    ## Use instead

    ```python
    in_place(ref)  # a kernel with one parameter, which it reads and writes
    double(ref[...], ref)  # or a copy
    ```
    """

    code = "MGF406"
    name = "same-ref-twice"
    jax = "0.10.2 to 0.12.0.1, outside of `jit`; what mgpu-fix runs is traced, so that `check` does not meet it"
    by_hand = "give the kernel one parameter for it, or a copy: ref[...]"
    signatures = (Signature("NotImplementedError", r"^Cannot pass the same ref into a mpmd map multiple times"),)


class ScratchOfSeveralMeshes(Explained):
    """A kernel over several meshes allocates scratch without saying for which of them.

    ## What it means

    `pl.kernel` can run one body for each of several meshes. Scratch then has to name the mesh (`core_type`) whose
    memory it is, which only types for TPUs do.

    ## Why it happens

    Several meshes are for TPUs, whose cores differ. A GPU has one kind of block.

    ## Example

    ```python
    pl.kernel([first, second], out_type=out, mesh=[mesh, mesh], scratch_types=[plgpu.SMEM((128,), jnp.float32)])
    ```

    ## Use instead

    ```python
    plgpu.kernel(body, out_type=out, num_threads=2, thread_name="wg", scratch_types=[plgpu.SMEM((128,), jnp.float32)])
    ```

    One kernel whose warpgroups ask `lax.axis_index("wg")`, or one kernel after the other.
    """

    code = "MGF407"
    name = "scratch-of-several-meshes"
    jax = _ALL
    by_hand = "one mesh, whose warpgroups tell each other apart by lax.axis_index"
    signatures = (Signature("NotImplementedError", r"^MPMD map with more than one mesh requires scratch_type to ha"),)


class SemaphoreAsArray(Explained):
    """A semaphore comes into a kernel, or out of it, as an array would.

    ## What it means

    Semaphores are memory with a state. A kernel can allocate them as scratch, or be given a Ref to them.

    ## Why it happens

    In JAX up to 0.11 semaphores went through kernels as outputs.

    ## Example

    ```python
    plgpu.kernel(body, out_type=plgpu.SemaphoreType.REGULAR)
    ```

    ## Use instead

    ```python
    plgpu.kernel(body, out_type=out, scratch_types=[plgpu.SemaphoreType.REGULAR])
    ```

    What several kernels share is made by `plgpu.alloc_semaphore` before them.
    """

    code = "MGF408"
    name = "semaphore-as-array"
    jax = _ALL
    by_hand = "allocate it as scratch, or wrap it in jax.new_ref"
    signatures = (
        Signature("ValueError", r"^Kernels cannot return semaphores"),
        Signature("ValueError", r"^Invalid out_shape type: <enum 'SemaphoreType'>"),
        Signature("ValueError", r"^Cannot pass semaphores into kernels as arrays"),
        Signature("ValueError", r"^Must (signal|wait|read) semaphores of the following types"),
    )


RULES = (
    SameRefTwice(),
    ScratchOfSeveralMeshes(),
    SemaphoreAsArray(),
)
