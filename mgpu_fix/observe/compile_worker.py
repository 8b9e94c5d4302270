"""One compile, in a process of its own: a compiler that finds no way often ends its process. Run by path; imports
nothing of mgpu-fix.

python compile_worker.py STUB PLUGIN ARCH SECONDS MODULE

The last line on standard output is JSON: ``{"ok": true, "shared": BYTES}``, ``{"ok": false}`` where the compiler
refuses the module, ``{"unusable": REASON}`` where nothing is known of it, or ``{"driver": true}`` where there is a real
driver, so that nothing is tried. The compiler's own words go to both streams.
"""

import ctypes
import json
import mmap
import os
import re
import signal
import struct
import sys
from collections.abc import Callable, Iterator

#: what makes LLVM know NVIDIA's GPUs, in the order of its own InitializeAllTargets
_REGISTRATIONS = (b"LLVMInitializeNVPTXTargetInfo", b"LLVMInitializeNVPTXTarget", b"LLVMInitializeNVPTXTargetMC")


def main() -> None:
    """Compile, and say what became of it."""
    stub_path, plugin_path, arch, seconds, module_path = sys.argv[1:]
    # Whoever started this may be killed, and must not leave a compiler behind that never ends.
    signal.alarm(int(seconds) + 1)
    print(json.dumps(_compile(stub_path, plugin_path, arch, module_path)), flush=True)
    # Not by way of the plugin's destructors.
    os._exit(0)


def _compile(stub_path: str, plugin_path: str, arch: str, module_path: str) -> dict[str, object]:
    try:
        ctypes.CDLL("libcuda.so.1")
    except OSError:
        pass
    else:
        return {"driver": True}
    try:
        # By its soname it is what the plugin finds when it asks for the driver.
        stub = ctypes.CDLL(stub_path, mode=ctypes.RTLD_GLOBAL)
        plugin = ctypes.CDLL(plugin_path)
        compiler = plugin.MosaicGpuCompile
    except (OSError, AttributeError) as e:
        return {"unusable": str(e)}
    compiler.argtypes, compiler.restype = [ctypes.c_char_p, ctypes.c_int], ctypes.c_void_p
    major, minor = divmod(int(re.sub(r"\D", "", arch)), 10)
    ctypes.c_int.in_dll(stub, "mgpu_fix_major").value = major
    ctypes.c_int.in_dll(stub, "mgpu_fix_minor").value = minor
    with open(module_path, "rb") as file:
        module = file.read()
    said = _said()
    done = compiler(module, len(module))
    if not done and _said() == said:
        # JAX 0.10.2 asks LLVM of the GPU before anything made LLVM know it.
        for register in _functions(plugin_path, ctypes.cast(compiler, ctypes.c_void_p).value or 0):
            register()
        done = compiler(module, len(module))
    ctypes.CDLL(None).fflush(None)
    if not done:
        return {"ok": False} if _said() != said else {"unusable": "the compiler fails and does not say why"}
    return {"ok": True, "shared": ctypes.c_int.in_dll(stub, "mgpu_fix_shared").value}


def _said() -> int:
    """How much was written to standard error, which is a file."""
    return os.fstat(2).st_size


def _functions(library: str, compiler: int) -> Iterator[Callable[[], None]]:
    """The registrations, which the library does not export, by way of its symbol table; none where it has no such
    table. ``compiler`` is where MosaicGpuCompile lies."""
    with open(library, "rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
        tables = _symbol_tables(data)
        places = [_place(data, tables, name) for name in (b"MosaicGpuCompile", *_REGISTRATIONS)]
    own, *others = places
    for place in others:
        if own and place:
            yield ctypes.CFUNCTYPE(None)(compiler - own + place)


def _symbol_tables(data: mmap.mmap) -> list[tuple[int, int, int, int]]:
    """Start and end of each symbol table of a 64-bit ELF file, and of its names."""
    if data[:6] != b"\x7fELF\x02\x01":
        return []
    start, size, count = (struct.unpack_from(f, data, at)[0] for f, at in (("<Q", 0x28), ("<H", 0x3A), ("<H", 0x3C)))
    sections = [struct.unpack_from("<IIQQQQI", data, start + i * size) for i in range(count)]
    tables = [s for s in sections if s[1] == 2]
    return [(t[4], t[4] + t[5], sections[t[6]][4], sections[t[6]][4] + sections[t[6]][5]) for t in tables]


def _place(data: mmap.mmap, tables: list[tuple[int, int, int, int]], name: bytes) -> int:
    """The address of a symbol in its library, 0 where it has none."""
    for start, end, names, names_end in tables:
        at = data.find(b"\0" + name + b"\0", names, names_end)
        if at < 0:
            continue
        wanted = struct.pack("<I", at + 1 - names)
        found = data.find(wanted, start, end)
        while found >= 0:
            if (found - start) % 24 == 0:
                return int(struct.unpack_from("<Q", data, found + 8)[0])
            found = data.find(wanted, found + 1, end)
    return 0


if __name__ == "__main__":
    main()
