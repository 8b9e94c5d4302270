// A stand-in for VS Code: what the bundle needs to run a server for one open file, and nothing for all else.

import { EventEmitter } from "node:events";
import { fileURLToPath, pathToFileURL } from "node:url";

export class Uri {
  static parse = (text: string) => new Uri(text);
  static file = (path: string) => new Uri(pathToFileURL(path).href);
  readonly scheme: string;
  constructor(readonly text: string) {
    this.scheme = text.split(":")[0] ?? "";
  }
  get fsPath(): string {
    return fileURLToPath(this.text);
  }
  toString(): string {
    return this.text;
  }
}

export interface Found {
  code: { value: string };
  source: string;
  line: number;
}

/** Anything else of the API: can be called, made and asked, and does nothing. */
const nothing: unknown = new Proxy(class {}, {
  get: (target, name) => name === "prototype" ? target.prototype : name === "then" ? undefined : nothing,
  apply: () => nothing,
  construct: (target, args, made) => (made === nothing ? (nothing as object) : Reflect.construct(target, args, made)),
});

function api<T extends object>(known: T): T {
  return new Proxy(known, { get: (target, name) => (name in target ? target[name as keyof T] : nothing) });
}

/** An editor with one file open; `told` hears what it shows, `set` changes a setting. */
export function editor(folder: string, text: string, settings: Record<string, unknown>, python: string) {
  const told = new EventEmitter();
  const configured = new EventEmitter();
  const uri = Uri.file(`${folder}/k.py`);
  const item = api({ text: "", show: () => told.emit("status", item.text) });
  const document = { uri, languageId: "python", version: 1, isClosed: false, fileName: uri.fsPath, getText: () => text };
  const environments = {
    getActiveEnvironmentPath: () => ({ path: python }),
    resolveEnvironment: async (chosen: { path: string }) => ({ executable: { uri: Uri.file(chosen.path) } }),
    onDidChangeActiveEnvironmentPath: () => nothing,
  };
  const vscode = api({
    version: "1.91.0",
    env: api({ appName: "none", language: "en" }),
    Uri,
    CancellationTokenSource: class {
      token = { isCancellationRequested: false, onCancellationRequested: () => nothing };
    },
    Range: class {
      constructor(readonly line: number) {}
    },
    Diagnostic: class {
      readonly line: number;
      constructor(range: { line: number }) {
        this.line = range.line;
      }
    },
    extensions: api({ getExtension: () => ({ activate: async () => ({ environments }) }) }),
    window: api({
      createStatusBarItem: () => item,
      showErrorMessage: async (message: string) => void told.emit("message", message),
      visibleTextEditors: [{ document }],
      tabGroups: api({ all: [] }),
    }),
    languages: api({
      match: () => 10,
      createDiagnosticCollection: () => api({ set: (_: Uri, found: unknown[]) => told.emit("diagnostics", found) }),
    }),
    workspace: api({
      isTrusted: true,
      textDocuments: [document],
      notebookDocuments: [],
      workspaceFolders: [{ uri: Uri.file(folder), name: "folder", index: 0 }],
      getConfiguration: () => api({ get: (name: string, other: unknown) => settings[name] ?? other }),
      onDidChangeConfiguration: (heard: (event: unknown) => void) => {
        configured.on("changed", heard);
        return nothing;
      },
    }),
  });
  const set = (name: string, value: unknown) => {
    settings[name] = value;
    configured.emit("changed", { affectsConfiguration: (section: string) => `mgpu-fix.${name}`.startsWith(section) });
  };
  return { vscode, told, set };
}
