"""Arrays on disk: ``NUMBER.DTYPE.npy``, with the dtypes that NumPy has no name for, and nothing pickled."""

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np


#: seed of the one more draw of a kernel's inputs
DRAW_SEED = 20240229


def stored(array: "np.ndarray") -> "np.ndarray":
    """An array as it is stored: bfloat16, the float8s and the like as unsigned integers of their bytes."""
    return array if array.dtype.isbuiltin == 1 else array.view(f"u{array.dtype.itemsize}")


def restored(array: "np.ndarray", dtype: str) -> "np.ndarray":
    """The inverse of :func:`stored` for an array whose dtype was called ``dtype``."""
    import ml_dtypes  # noqa: F401 (registers them with NumPy)
    import numpy as np

    return array if array.dtype.name == dtype else array.view(np.dtype(dtype))


def load(path: Path) -> "np.ndarray":
    """An array as a run stored it."""
    import numpy as np

    return restored(np.load(path, allow_pickle=False), path.name.split(".")[1])
