// Which command is the language server.

import * as path from "node:path";

export interface Command {
  command: string;
  args: string[];
}

/** What has to be known of the machine; the tests' is made up. */
export interface Machine {
  windows: boolean;
  home: string;
  /** `PATH`, as the environment has it. */
  path: string;
  isExecutable(file: string): Promise<boolean>;
  /** The interpreter that the Python extension runs the workspace with. */
  interpreter(): Promise<string | undefined>;
  /** Whether an interpreter ends well with these arguments. */
  runs(python: string, args: string[]): Promise<boolean>;
}

/** Why there is no server, and what to do about it, in one line. */
export class NotFound extends Error {}

// -P: what lies in the folder that is open must not be imported.
const ISOLATED = ["-P", "-m", "mgpu_fix", "lsp"];
const ASK = ["-P", "-c", "import importlib.util, sys; sys.exit(importlib.util.find_spec('mgpu_fix') is None)"];

/**
 * The command that `setting` names, else that of the chosen interpreter, else the one on `PATH`. What a folder that is
 * not `trusted` may have chosen is not run.
 */
export async function find(setting: string, trusted: boolean, machine: Machine): Promise<Command> {
  if (setting) {
    const file = setting.startsWith("~/") ? path.join(machine.home, setting.slice(2)) : setting;
    if (!path.isAbsolute(file) || !(await machine.isExecutable(file))) {
      throw new NotFound(`The setting mgpu-fix.path is ${setting}, which is no command by its full path. Set it anew, or remove it.`);
    }
    return { command: file, args: ["lsp"] };
  }
  const python = trusted ? await machine.interpreter() : undefined;
  if (python && (await machine.runs(python, ASK))) {
    return { command: python, args: ISOLATED };
  }
  const name = machine.windows ? "mgpu-fix.exe" : "mgpu-fix";
  for (const folder of machine.path.split(machine.windows ? ";" : ":")) {
    // One that is relative would lead into the folder that is open.
    if (path.isAbsolute(folder) && (await machine.isExecutable(path.join(folder, name)))) {
      return { command: path.join(folder, name), args: ["lsp"] };
    }
  }
  const where = python
    ? `${python} has no mgpu-fix, and PATH has none`
    : trusted
      ? "There is no mgpu-fix on PATH"
      : "There is no mgpu-fix on PATH, and a folder that is not trusted is not asked for its environment";
  throw new NotFound(`${where}. Install it with pip install 'mgpu-fix[lsp]', or set mgpu-fix.path.`);
}
