"""Starts the server or one run, by file, so that any Python runs this very package: ``python -P start.py MODULE ...``.

Imports nothing of the package before it is in place.
"""

import importlib
import importlib.util
import os
import sys


def main() -> None:
    """Run ``main()`` of the module named first, with the arguments after it."""
    folder = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    spec = importlib.util.spec_from_file_location(
        "mgpu_fix", os.path.join(folder, "__init__.py"), submodule_search_locations=[folder]
    )
    assert spec is not None and spec.loader is not None
    sys.modules["mgpu_fix"] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(sys.modules["mgpu_fix"])
    sys.argv[:2] = sys.argv[1:2]
    importlib.import_module(sys.argv[0]).main()


if __name__ == "__main__":
    main()
