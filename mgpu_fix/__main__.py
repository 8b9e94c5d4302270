"""The ``mgpu-fix`` command. What takes longest, JAX's import in another process, starts before anything else."""

import sys


def main() -> None:
    """Run the command line and exit with the contract's code."""
    early = None
    if sys.argv[1:2] and sys.argv[1] in ("apply", "check") and not {"--help", "-h"} & set(sys.argv):
        from mgpu_fix.observe import Observer

        early = Observer()
        early.start()
    from mgpu_fix.cli import run

    sys.exit(run(early))


if __name__ == "__main__":
    main()
