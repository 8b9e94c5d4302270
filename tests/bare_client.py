"""A client of the language server that knows nothing but JSON-RPC, and an editor's view of what it hears."""

import contextlib
import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from queue import Empty, Queue
from typing import Any


class Bare:
    """A client that knows nothing but JSON-RPC. ``texts`` are what an editor would show."""

    def __init__(self, folder: Path, options: Any = None, capabilities: Any = None, **env: str) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-m", "mgpu_fix", "lsp"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=open(folder.parent / "lsp.txt", "wb"),  # noqa: SIM115 (the child's)
            cwd=folder.parent,
            env={**os.environ, **env},
        )
        self.folder, self.configuration = folder, {}
        self.texts: dict[str, str] = {}
        self.versions: dict[str, int] = {}
        self.heard: list[dict[str, Any]] = []
        self._queue: Queue[dict[str, Any]] = Queue()
        self._id = 0
        threading.Thread(target=self._listen, daemon=True).start()
        given = {"processId": None, "rootUri": folder.as_uri(), "capabilities": capabilities or CAPABILITIES}
        given |= {"workspaceFolders": [{"uri": folder.as_uri(), "name": "folder"}], "initializationOptions": options}
        self.server = self.ask("initialize", given)
        self.tell("initialized", {})

    def _listen(self) -> None:
        stream = self.process.stdout
        assert stream
        while header := stream.readline():
            length = int(header.split(b":")[1])
            while stream.readline().strip():
                pass
            self._queue.put(json.loads(stream.read(length)))

    def _send(self, message: dict[str, Any]) -> None:
        data = json.dumps({"jsonrpc": "2.0", **message}).encode()
        assert self.process.stdin
        self.process.stdin.write(b"Content-Length: %d\r\n\r\n%s" % (len(data), data))
        self.process.stdin.flush()

    def tell(self, method: str, params: Any) -> None:
        self._send({"method": method, "params": params})

    def ask(self, method: str, params: Any) -> Any:
        self._id += 1
        self._send({"id": self._id, "method": method, "params": params})
        while True:
            message = self.next()
            if message.get("id") == self._id and "method" not in message:
                assert "error" not in message, message
                return message["result"]

    def next(self, timeout: float = 90) -> dict[str, Any]:
        """The next message; requests of the server's are answered."""
        message = self._queue.get(timeout=timeout)
        if "method" in message:
            self.heard.append(message)
            if "id" in message:
                asked = message["method"] == "workspace/configuration"
                self._send({"id": message["id"], "result": [self.configuration] if asked else None})
        return message

    def settle(self, seconds: float) -> None:
        """Hear everything that comes for some time."""
        end = time.monotonic() + seconds
        while (left := end - time.monotonic()) > 0:
            with contextlib.suppress(Empty):
                self.next(left)

    def uri(self, name: str) -> str:
        return (self.folder / name).as_uri()

    def open(self, name: str, text: str | None = None) -> None:
        self.texts[name] = (self.folder / name).read_bytes().decode() if text is None else text
        self.versions[name] = 1
        document = {"uri": self.uri(name), "languageId": "python", "version": 1, "text": self.texts[name]}
        self.tell("textDocument/didOpen", {"textDocument": document})

    def type(self, name: str, text: str) -> None:
        self.texts[name] = text
        self.versions[name] += 1
        document = {"uri": self.uri(name), "version": self.versions[name]}
        self.tell("textDocument/didChange", {"textDocument": document, "contentChanges": [{"text": text}]})

    def save(self, name: str) -> None:
        (self.folder / name).write_bytes(self.texts[name].encode())
        self.tell("textDocument/didSave", {"textDocument": {"uri": self.uri(name)}})

    def painted(self, name: str, timeout: float = 90) -> list[dict[str, Any]]:
        """The diagnostics that are published next for a file."""
        while True:
            message = self.next(timeout)
            if message.get("method") == "textDocument/publishDiagnostics":
                params = message["params"]
                if params["uri"] == self.uri(name):
                    assert params["version"] == self.versions[name]
                    found: list[dict[str, Any]] = params["diagnostics"]
                    return found

    def last(self, name: str) -> list[dict[str, Any]]:
        """The diagnostics that were published last for a file."""
        told = (m["params"] for m in self.heard if m["method"] == "textDocument/publishDiagnostics")
        found: list[dict[str, Any]] = [p["diagnostics"] for p in told if p["uri"] == self.uri(name)][-1]
        return found

    def until_idle(self, name: str = "") -> None:
        """Until what was begun, about that file at last, has ended."""
        while True:
            told = [m["params"] for m in self.heard if m["method"] == "$/progress"]
            begun = {p["token"] for p in told if p["value"].get("title", "").endswith(name or ".py")}
            if begun and begun <= {p["token"] for p in told if p["value"]["kind"] == "end"}:
                return
            self.next()

    def actions(self, name: str, place: Any = None, only: list[str] | None = None) -> list[dict[str, Any]]:
        whole = {"start": {"line": 0, "character": 0}, "end": {"line": 10**6, "character": 0}}
        context = {"diagnostics": [], **({"only": only} if only else {})}
        given = {"textDocument": {"uri": self.uri(name)}, "range": place or whole, "context": context}
        found: list[dict[str, Any]] = self.ask("textDocument/codeAction", given)
        return found

    def applied(self, action: dict[str, Any]) -> dict[str, str]:
        """The texts after an action, as an editor would make them."""
        after = dict(self.texts)
        for change in action["edit"]["documentChanges"]:
            name = next(n for n in self.texts if self.uri(n) == change["textDocument"]["uri"])
            assert change["textDocument"]["version"] == self.versions[name]
            after[name] = edited(after[name], change["edits"], self.server["capabilities"]["positionEncoding"])
        return after

    def close(self) -> None:
        self.ask("shutdown", None)
        self.tell("exit", None)
        assert self.process.wait(20) == 0


CAPABILITIES = {
    "general": {"positionEncodings": ["utf-16"]},
    "window": {"workDoneProgress": True},
    "workspace": {"workspaceEdit": {"documentChanges": True}},
    "textDocument": {"codeAction": {"codeActionLiteralSupport": {"codeActionKind": {"valueSet": []}}}},
}


def edited(text: str, edits: list[dict[str, Any]], encoding: str) -> str:
    """What an editor makes of edits: an implementation of the protocol that shares nothing with the server's."""
    lines = text.replace("\r\n", "\n\0").split("\n")
    starts = [0]
    for line in lines[:-1]:
        starts.append(starts[-1] + len(line) + 1)

    def offset(place: dict[str, int]) -> int:
        line = lines[place["line"]]
        skipped = 1 if line.startswith("\0") else 0
        width = {"utf-8": 1, "utf-16": 2, "utf-32": 4}[encoding]
        code = {1: "utf-8", 2: "utf-16-le", 4: "utf-32-le"}[width]
        before = line[skipped:].encode(code)[: place["character"] * width].decode(code)
        return starts[place["line"]] + skipped + len(before)

    for edit in sorted(edits, key=lambda e: offset(e["range"]["start"]), reverse=True):
        start, end = offset(edit["range"]["start"]), offset(edit["range"]["end"])
        text = text[:start] + edit["newText"] + text[end:]
    return text


def at(text: str, found: str, encoding: str = "utf-16") -> dict[str, dict[str, int]]:
    """The range of the first place of a text."""
    width = {"utf-8": ("utf-8", 1), "utf-16": ("utf-16-le", 2), "utf-32": ("utf-32-le", 4)}[encoding]

    def place(offset: int) -> dict[str, int]:
        before = text[:offset].split("\n")
        return {"line": len(before) - 1, "character": len(before[-1].encode(width[0])) // width[1]}

    start = text.index(found)
    return {"start": place(start), "end": place(start + len(found))}


@contextlib.contextmanager
def client(folder: Path, options: Any = None, capabilities: Any = None, **env: str) -> Iterator[Bare]:
    bare = Bare(folder, options, capabilities, **env)
    try:
        yield bare
        if bare.process.poll() is None:
            bare.close()
    finally:
        bare.process.kill()
        bare.process.wait()
