"""The server: what of the protocol it speaks, and nothing else."""

import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from lsprotocol import types
from pygls.exceptions import JsonRpcException
from pygls.lsp.server import LanguageServer
from pygls.uris import from_fs_path, to_fs_path

from mgpu_fix import __version__
from mgpu_fix.catalogue import Catalogue
from mgpu_fix.console import UsageError
from mgpu_fix.lsp.analysis import Action, Problem
from mgpu_fix.lsp.convert import FIX_ALL, Converter, is_wanted, touches
from mgpu_fix.lsp.session import Document, Job, Session
from mgpu_fix.lsp.settings import Settings, read
from mgpu_fix.observe.compiler import cache_folder

_SECTION = "mgpu-fix"


class Server(LanguageServer):
    """Speaks for one :class:`Session`, of which it is the client."""

    def __init__(self, catalogue: Catalogue) -> None:
        # Whole texts: what pygls takes for the end of a line is not always one.
        super().__init__(_SECTION, __version__, text_document_sync_kind=types.TextDocumentSyncKind.Full)
        self.session = Session(self, catalogue)
        #: what the editor started us with, which its settings outweigh
        self.initial = Settings()
        self._pages = _pages(catalogue)
        #: what was published last, by document
        self._shown: dict[str, tuple[int, tuple[Problem, ...]]] = {}
        #: by job, the token of a progress bar that the editor agreed to
        self._tokens: dict[int, str] = {}
        self._jobs: dict[str, Job] = {}

    # ------------------------------------------------------------------ what the session tells

    def show(self, document: Document) -> None:
        """Publish what is known of a document."""
        shown = document.version, document.analysis.problems
        # Where there is more to be done about the same, editors hear of it and ask again.
        if self._shown.get(document.uri) == shown:
            return
        self._shown[document.uri] = shown
        diagnostics = [d for _, d in self._diagnostics(document)]
        self.text_document_publish_diagnostics(
            types.PublishDiagnosticsParams(document.uri, diagnostics, document.version)
        )

    def begin(self, job: Job) -> None:
        """Ask for a progress bar, where the editor has some."""
        window = self.client_capabilities.window
        if not window or not window.work_done_progress:
            return
        token = str(uuid.uuid4())
        self._jobs[token] = job

        def agreed(_: Any) -> None:
            if not job.done:
                self._tokens[id(job)] = token
                title = f"mgpu-fix: {Path(job.document.path).name}"
                self.work_done_progress.begin(token, types.WorkDoneProgressBegin(title, cancellable=True))

        self.work_done_progress.create(token, agreed)

    def report(self, job: Job, text: str) -> None:
        """Say on the progress bar what goes on."""
        if token := self._tokens.get(id(job)):
            self.work_done_progress.report(token, types.WorkDoneProgressReport(message=text))

    def end(self, job: Job) -> None:
        """Take the progress bar away."""
        self._jobs = {token: other for token, other in self._jobs.items() if other is not job}
        if token := self._tokens.pop(id(job), None):
            self.work_done_progress.end(token, types.WorkDoneProgressEnd(message=job.ending))

    def say(self, text: str) -> None:
        """Show a message."""
        self.window_show_message(types.ShowMessageParams(types.MessageType.Error, text))

    # ------------------------------------------------------------------ what the editor asks

    def actions(self, params: types.CodeActionParams) -> list[types.CodeAction]:
        """What can be done at a place, from what is known already."""
        document = self.session.documents.get(params.text_document.uri)
        if document is None or not document.current:
            return []
        found: list[types.CodeAction] = []
        if is_wanted(types.CodeActionKind.QuickFix, params.context.only):
            for problem, diagnostic in self._diagnostics(document):
                if problem.actions and touches(diagnostic.range, params.range):
                    for action in problem.actions:
                        found += self._action(document, action, types.CodeActionKind.QuickFix, [diagnostic])
        fix_all = document.analysis.fix_all
        if fix_all and is_wanted(FIX_ALL, params.context.only):
            found += self._action(document, fix_all, FIX_ALL, None)
        return found

    def cancelled(self, token: int | str) -> None:
        """The editor's user wants a job to end."""
        self.session.cancel(self._jobs.get(str(token)))

    def _action(
        self, document: Document, action: Action, kind: str, diagnostics: list[types.Diagnostic] | None
    ) -> Iterator[types.CodeAction]:
        sources, now = document.analysis.sources, {d.path: d for d in self.session.documents.values()}
        # Another file may have been changed since.
        if any(path not in now or now[path].text != sources[path].text for path in action.changes):
            return
        capabilities = self.client_capabilities.workspace
        edit = capabilities.workspace_edit if capabilities else None
        versions = {path: now[path].version for path in action.changes}
        yield types.CodeAction(
            title=action.title if kind != FIX_ALL else f"mgpu-fix: make all proven fixes ({action.title})",
            kind=kind,
            diagnostics=diagnostics,
            is_preferred=action.preferred and kind != FIX_ALL,
            edit=self._converter(document).workspace_edit(action, versions, bool(edit and edit.document_changes)),
        )

    def _diagnostics(self, document: Document) -> list[tuple[Problem, types.Diagnostic]]:
        converter = self._converter(document)
        return [(p, converter.diagnostic(p, self._pages.get(p.code))) for p in document.analysis.problems]

    def _converter(self, document: Document) -> Converter:
        uris = {d.path: d.uri for d in self.session.documents.values()} | {document.path: document.uri}
        encoding = str(getattr(self.workspace.position_encoding, "value", self.workspace.position_encoding))
        return Converter(document.analysis, encoding, lambda path: uris.get(path) or from_fs_path(path) or path)

    async def configure(self, given: Any) -> None:
        """Take settings from a message, or ask for them where it has none."""
        workspace = self.client_capabilities.workspace
        try:
            if not given and workspace and workspace.configuration:
                item = types.ConfigurationItem(section=_SECTION)
                answer = await self.workspace_configuration_async(types.ConfigurationParams([item]))
                given = answer[0] if answer else None
            self.session.configured(read(given, self.initial))
        except UsageError as e:
            self.say(f"mgpu-fix: {e}")
        except JsonRpcException:
            # An editor that has no settings for us may say so by an error.
            pass

    def roots(self) -> list[str]:
        """Folders of the workspace."""
        folders = [to_fs_path(folder.uri) for folder in self.workspace.folders.values()]
        return [f for f in (folders or [self.workspace.root_path]) if f]

    def report_server_error(self, error: Exception, source: Any) -> None:
        """A fault is told once, and is no reason to stop."""
        self.session.own_fault(error)

    def serve(self) -> None:
        """Answer on standard input and output until the editor is gone."""
        try:
            self.start_io()
        finally:
            self.session.close()


def _pages(catalogue: Catalogue) -> dict[str, str]:
    """Addresses of the rules' explain pages, by code; none where there is no place to write them."""
    folder = cache_folder()
    pages = {}
    for rule in catalogue.rules if folder else ():
        assert folder is not None
        page = folder / "rules" / f"{rule.code}.md"
        text = f"# {rule.code} {rule.name}\n\n{rule.page}\n"
        try:
            page.parent.mkdir(exist_ok=True)
            if not page.is_file() or page.read_text(encoding="utf-8") != text:
                page.write_text(text, encoding="utf-8")
        except OSError:
            continue
        pages[rule.code] = page.as_uri()
    return pages


def create(catalogue: Catalogue) -> Server:
    """A server that answers what the language server protocol asks of it."""
    server = Server(catalogue)
    session = server.session

    @server.feature(types.INITIALIZE)
    def initialize(params: types.InitializeParams) -> None:
        try:
            session.settings = server.initial = read(params.initialization_options)
        except UsageError as e:
            server.say(f"mgpu-fix: {e}")
        session.rooted(server.roots())

    @server.feature(types.INITIALIZED)
    async def initialized(_: types.InitializedParams) -> None:
        workspace = server.client_capabilities.workspace
        if workspace and workspace.did_change_configuration and workspace.did_change_configuration.dynamic_registration:
            registration = types.Registration(str(uuid.uuid4()), types.WORKSPACE_DID_CHANGE_CONFIGURATION)
            server.client_register_capability(types.RegistrationParams([registration]))
        await server.configure(None)

    @server.feature(types.WORKSPACE_DID_CHANGE_CONFIGURATION)
    async def configuration(params: types.DidChangeConfigurationParams) -> None:
        await server.configure(params.settings)

    @server.feature(types.WORKSPACE_DID_CHANGE_WORKSPACE_FOLDERS)
    def folders(_: types.DidChangeWorkspaceFoldersParams) -> None:
        session.rooted(server.roots())

    @server.feature(types.TEXT_DOCUMENT_DID_OPEN)
    def opened(params: types.DidOpenTextDocumentParams) -> None:
        document = params.text_document
        path = to_fs_path(document.uri)
        # What has no place on the disk is told once it has one.
        if path and document.uri.startswith("file:"):
            session.opened(document.uri, path, document.version, document.text)

    @server.feature(types.TEXT_DOCUMENT_DID_CHANGE)
    def changed(params: types.DidChangeTextDocumentParams) -> None:
        uri = params.text_document.uri
        if uri in session.documents:
            session.changed(uri, params.text_document.version, server.workspace.get_text_document(uri).source)

    @server.feature(types.TEXT_DOCUMENT_DID_SAVE)
    def saved(params: types.DidSaveTextDocumentParams) -> None:
        if params.text_document.uri in session.documents:
            session.check(params.text_document.uri)

    @server.feature(types.TEXT_DOCUMENT_DID_CLOSE)
    def closed(params: types.DidCloseTextDocumentParams) -> None:
        if params.text_document.uri in session.documents:
            session.closed(params.text_document.uri)

    @server.feature(
        types.TEXT_DOCUMENT_CODE_ACTION,
        types.CodeActionOptions(code_action_kinds=[types.CodeActionKind.QuickFix, FIX_ALL]),
    )
    def actions(params: types.CodeActionParams) -> list[types.CodeAction]:
        return server.actions(params)

    @server.feature(types.WINDOW_WORK_DONE_PROGRESS_CANCEL)
    def cancelled(params: types.WorkDoneProgressCancelParams) -> None:
        server.cancelled(params.token)

    return server
