"""Documents that are open, and the runs about them: one at a time, in a thread of their own, the newest wins."""

import asyncio
import contextlib
import os
import sys
import threading
import traceback
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from mgpu_fix.catalogue import Catalogue, CatalogueError
from mgpu_fix.console import UsageError
from mgpu_fix.golden import GoldenError
from mgpu_fix.lsp.analysis import Analysis, with_runs, without_a_run
from mgpu_fix.lsp.settings import Settings, asked
from mgpu_fix.model import Observation
from mgpu_fix.observe import Observer, ObserverError
from mgpu_fix.repair import engine_of, observe
from mgpu_fix.source import SourceError, SourceFile
from mgpu_fix.versions import Window, installed
from mgpu_fix.walk import SKIPPED

#: how often a run that is no longer wanted is told so, in seconds: what comes before it has begun is not heard
_AGAIN = 0.2


class Cancelled(Exception):
    """Nobody wants to know any more what a job is about."""


class Client(Protocol):
    """What a session tells the editor; called in the event loop's thread only."""

    def show(self, document: "Document") -> None:
        """Paint a document's analysis."""
        ...

    def begin(self, job: "Job") -> None:
        """A job has begun; it is to be cancellable."""
        ...

    def report(self, job: "Job", text: str) -> None:
        """What a job does now."""
        ...

    def end(self, job: "Job") -> None:
        """A job is over, whatever came of it."""
        ...

    def say(self, text: str) -> None:
        """Something that stops the server from doing its work."""
        ...


@dataclass
class Document:
    """An open file: what is certain of it without a run, what runs showed, and the version that was painted last."""

    uri: str
    path: str
    version: int
    text: str
    static: Analysis = field(default_factory=Analysis)
    dynamic: Analysis | None = None
    painted: int | None = None
    job: "Job | None" = None

    @property
    def analysis(self) -> Analysis:
        """All that is shown."""
        return self.dynamic.over(self.static) if self.dynamic else self.static

    @property
    def current(self) -> bool:
        """Whether what is shown is about the text as it is now."""
        return self.painted == self.version


@dataclass
class Job:
    """Runs about one version of a document. ``sources`` is all that was open then, by path."""

    document: Document
    version: int
    folder: str
    sources: Mapping[str, SourceFile]
    cancelled: threading.Event = field(default_factory=threading.Event)
    delivered: bool = False
    done: bool = False

    def check(self) -> None:
        """Raise Cancelled where it is."""
        if self.cancelled.is_set():
            raise Cancelled

    @property
    def ending(self) -> str:
        """What came of it."""
        if self.cancelled.is_set():
            return "cancelled"
        return self.document.analysis.summary if self.delivered else "could not be run"

    @property
    def newest(self) -> bool:
        """Whether it is about the text as it is now, and nothing newer is."""
        return self.document.job is self and self.document.version == self.version


class Session:
    """Everything but the protocol. Its methods are called in the event loop's thread; only :meth:`_work`, and what it
    calls, is not."""

    def __init__(self, client: Client, catalogue: Catalogue) -> None:
        self.client, self.catalogue = client, catalogue
        self.settings = Settings()
        self.folders: tuple[str, ...] = ()
        self.documents: dict[str, Document] = {}
        self._observers: dict[tuple[str, str], Observer] = {}
        self._under_way: Job | None = None
        self._lock = threading.Lock()
        self._said: set[str] = set()
        self._tasks: set[asyncio.Future[None]] = set()
        # The first reads, the second runs programs.
        self._readers = ThreadPoolExecutor(1, "mgpu-fix-reads")
        self._runs = ThreadPoolExecutor(1, "mgpu-fix-runs")

    # ------------------------------------------------------------------ what the editor says

    def opened(self, uri: str, path: str, version: int, text: str) -> None:
        """A document was opened."""
        self.documents[uri] = Document(uri, os.path.realpath(path), version, text)
        self.check(uri)

    def changed(self, uri: str, version: int, text: str) -> None:
        """A keystroke: nothing is run, and what was found is about another text."""
        document = self.documents[uri]
        document.version, document.text = version, text
        self.cancel(document.job)

    def closed(self, uri: str) -> None:
        """A document was closed; nothing is shown of it any more."""
        document = self.documents.pop(uri)
        self.cancel(document.job)
        document.dynamic, document.static = None, Analysis()
        self.client.show(document)

    def configured(self, given: Settings) -> None:
        """The settings are others now."""
        if given == self.settings:
            return
        trusted, self.settings = self.settings.trust, given
        if trusted and not given.trust:
            self.stop()
        self._warm()
        for uri in self.documents:
            self.check(uri)

    def rooted(self, folders: Iterable[str]) -> None:
        """The folders of the workspace; nothing outside of them is run."""
        self.folders = tuple(sorted(map(os.path.realpath, folders), key=len, reverse=True))
        self._warm()

    def check(self, uri: str) -> None:
        """Look at a document as it is now, and run what it is about if that is trusted."""
        document = self.documents[uri]
        self.cancel(document.job)
        if self._is_foreign(document.path):
            return
        document.job = self._job(document)
        if document.job is None:
            document.dynamic = None
        else:
            self._runs.submit(self._work, document.job, self.settings, asyncio.get_running_loop())
        self._tasks.add(task := asyncio.ensure_future(self._read(document, document.version)))
        task.add_done_callback(self._tasks.discard)

    def cancel(self, job: Job | None) -> None:
        """Let a job go, and interrupt the run that it may have under way."""
        if job is not None and not job.done:
            job.cancelled.set()
            self._interrupt(job)
            asyncio.get_running_loop().call_later(_AGAIN, self.cancel, job)

    def stop(self) -> "Future[None]":
        """End what runs, and the processes that run it."""
        for document in self.documents.values():
            if document.job is not None:
                document.job.cancelled.set()
        return self._runs.submit(self._close)

    def close(self) -> None:
        """The editor is gone."""
        stopped = self.stop()
        while not stopped.done():
            with self._lock:
                job = self._under_way
            self._interrupt(job)
            wait([stopped], _AGAIN)
        self._readers.shutdown()
        self._runs.shutdown()

    def own_fault(self, error: Exception) -> None:
        """Tell once of a fault of the server itself."""
        traceback.print_exception(error)
        self._say(f"mgpu-fix failed, which is a fault of its own: {type(error).__name__}: {error}")

    # ------------------------------------------------------------------ in the event loop

    def _warm(self) -> None:
        """JAX takes seconds to import; no user code is run for that."""
        for folder in self.folders if self.settings.trust else ():
            self._runs.submit(self._observer, folder)

    def _job(self, document: Document) -> Job | None:
        """What is to be run about a document; None where nothing may or can be."""
        folder = self._folder_of(document.path)
        may = self.settings.trust and folder and os.path.isfile(document.path)
        if not may or not _speaks_of_pallas(document.text):
            return None
        sources = {}
        for other in self.documents.values():
            if self._folder_of(other.path) == folder:
                with contextlib.suppress(SourceError):
                    source = SourceFile.of_text(other.path, other.text)
                    _ = source.tree
                    sources[other.path] = source
        return Job(document, document.version, folder, sources) if document.path in sources else None

    def _folder_of(self, path: str) -> str:
        """The innermost folder of the workspace that holds a file, empty where none does."""
        return next((f for f in self.folders if Path(path).is_relative_to(f)), "")

    def _is_foreign(self, path: str) -> bool:
        """Whether a file is an installed package's, or of another tool's; people look at such, and do not mend them."""
        folder = self._folder_of(path)
        return not SKIPPED.isdisjoint(Path(os.path.relpath(path, folder) if folder else path).parts)

    def _interrupt(self, job: Job | None) -> None:
        # The lock: it must not be another job's run by now.
        with self._lock:
            if job is not None and self._under_way is job:
                for (folder, _), observer in list(self._observers.items()):
                    if folder == job.folder:
                        observer.interrupt()

    async def _read(self, document: Document, version: int) -> None:
        """Find what is certain without a run."""
        loop = asyncio.get_running_loop()
        try:
            found = await loop.run_in_executor(self._readers, _certain, document.path, document.text, self.catalogue)
        except Exception as e:
            self.own_fault(e)
            return
        if document.version != version or self.documents.get(document.uri) is not document:
            return
        document.static = found
        # What the last run showed stays until the next one shows more.
        if document.job is None or document.job.delivered or document.job.done or document.dynamic is None:
            self._paint(document)

    def _paint(self, document: Document) -> None:
        document.painted = document.version
        self.client.show(document)

    def _deliver(self, job: Job, analysis: Analysis) -> None:
        if job.newest and not job.cancelled.is_set():
            job.document.dynamic, job.delivered = analysis, True
            self._paint(job.document)

    def _ended(self, job: Job) -> None:
        job.done = True
        self.client.end(job)
        if job.newest and not job.delivered and self.documents.get(job.document.uri) is job.document:
            job.document.dynamic = None
            self._paint(job.document)

    def _say(self, text: str) -> None:
        if text not in self._said:
            self._said.add(text)
            self.client.say(text)

    # ------------------------------------------------------------------ in the thread that runs programs

    def _work(self, job: Job, settings: Settings, loop: asyncio.AbstractEventLoop) -> None:
        """Run what a job is about, and deliver what that shows, more with each run."""

        def tell(function: Callable[..., None], *args: Any) -> None:
            # The loop may be gone.
            with contextlib.suppress(RuntimeError):
                loop.call_soon_threadsafe(function, *args)

        def progress(text: str) -> None:
            tell(self.client.report, job, text)

        try:
            job.check()
            tell(self.client.begin, job)
            for analysis in self._analyses(job, settings, progress):
                tell(self._deliver, job, analysis)
        except Cancelled:
            pass
        except ObserverError as e:
            self._close()
            tell(self._say, f"mgpu-fix cannot run programs: {e}")
        except (UsageError, CatalogueError, GoldenError, OSError) as e:
            tell(self._say, f"mgpu-fix: {e}")
        except Exception as e:
            tell(self.own_fault, e)
        finally:
            tell(self._ended, job)

    def _analyses(self, job: Job, settings: Settings, progress: Callable[[str], None]) -> Iterator[Analysis]:
        task, oracle_python = asked(job.sources[job.document.path], job.folder, settings, self.catalogue)
        observer = self._observer(job.folder)
        oracle = self._observer(job.folder, oracle_python) if oracle_python else None
        unsaved = {path: source.data for path, source in job.sources.items() if _on_disk(path) != source.data}

        def run(texts: Mapping[str, bytes], draws: tuple[tuple[str, ...], ...] | None) -> Observation:
            with self._lock:
                self._under_way = job
            try:
                job.check()
                seen = observe(observer, oracle, task.program, unsaved, texts, draws)
            finally:
                with self._lock:
                    self._under_way = None
            job.check()
            return seen

        try:
            engine = engine_of(task, task.files, run, observer.folder, job.sources, self.catalogue, progress)
            yield from with_runs(engine, job.document.path, task.program.command is not None)
        finally:
            for used in filter(None, (observer, oracle)):
                used.clear()

    def _observer(self, folder: str, python: str = sys.executable) -> Observer:
        """The warm process that runs programs in a folder of the workspace."""
        if (folder, python) not in self._observers:
            self._observers[folder, python] = Observer(python, folder)
            self._observers[folder, python].start()
        return self._observers[folder, python]

    def _close(self) -> None:
        for observer in self._observers.values():
            observer.close()
        self._observers.clear()


def _speaks_of_pallas(text: str) -> bool:
    return "pallas" in text or "mosaic" in text


def _certain(path: str, text: str, catalogue: Catalogue) -> Analysis:
    """What is certain of a text without a run; nothing of one that is not Python, which others say."""
    try:
        source = SourceFile.of_text(path, text)
        return without_a_run(source, catalogue, Window(to=installed())) if _speaks_of_pallas(text) else Analysis()
    except SourceError:
        return Analysis()


def _on_disk(path: str) -> bytes | None:
    try:
        return Path(path).read_bytes()
    except OSError:
        return None
