"""The ``mgpu-fix`` command. What takes longest, JAX's import in another process, starts before anything else."""

import signal
import sys

#: the shell's 128 + SIGINT
INTERRUPTED = 130


def main() -> None:
    """Run the command line and exit with the contract's code."""
    observer = None
    try:
        for name in ("SIGTERM", "SIGHUP"):
            if hasattr(signal, name):
                signal.signal(getattr(signal, name), _interrupt)
        if sys.argv[1:2] and sys.argv[1] in ("apply", "check", "golden") and not {"--help", "-h"} & set(sys.argv):
            from mgpu_fix.observe import Observer

            observer = Observer()
            observer.start()
        from mgpu_fix.cli import run

        code = run(observer)
    except KeyboardInterrupt:
        sys.stderr.write("mgpu-fix: interrupted; files are as they were\n")
        code = INTERRUPTED
    finally:
        if observer is not None:
            observer.close()
    sys.exit(code)


def _interrupt(number: int, frame: object) -> None:
    # To be ended is to be interrupted: the runs end, and what they wrote goes.
    raise KeyboardInterrupt


if __name__ == "__main__":
    main()
