// What of this machine decides which command is started.

import { execFile } from "node:child_process";
import { constants } from "node:fs";
import { access } from "node:fs/promises";
import { homedir } from "node:os";
import { extensions, workspace, type Event, type Uri } from "vscode";
import type { Machine } from "./command";

/** Of the API of the Python extension what is used here. */
interface Environments {
  getActiveEnvironmentPath(resource?: Uri): { path: string };
  resolveEnvironment(environment: { path: string }): Promise<{ executable: { uri?: Uri } } | undefined>;
  onDidChangeActiveEnvironmentPath: Event<unknown>;
}

/** How long an interpreter may take to say what it has, in milliseconds. */
const PATIENCE = 20_000;

/** The environments that the Python extension knows, where it is there and runs. */
export async function environments(): Promise<Environments | undefined> {
  try {
    const extension = extensions.getExtension<{ environments?: Environments }>("ms-python.python");
    return (await extension?.activate())?.environments;
  } catch {
    return undefined;
  }
}

async function interpreter(): Promise<string | undefined> {
  const known = await environments();
  const chosen = known?.getActiveEnvironmentPath(workspace.workspaceFolders?.[0]?.uri);
  return chosen && (await known?.resolveEnvironment(chosen))?.executable.uri?.fsPath;
}

export const machine: Machine = {
  windows: process.platform === "win32",
  home: homedir(),
  path: process.env["PATH"] ?? "",
  isExecutable: (file) =>
    access(file, constants.X_OK).then(
      () => true,
      () => false,
    ),
  interpreter,
  runs: (python, args) => new Promise((done) => execFile(python, args, { timeout: PATIENCE }, (error) => done(!error))),
};
