// What the status bar says, from what the server reports of its runs.

import type { ProgressToken, WorkDoneProgressBegin, WorkDoneProgressEnd, WorkDoneProgressReport } from "vscode-languageclient";

export interface Status {
  text: string;
  tooltip: string;
  /** The run that is on. */
  token?: ProgressToken;
  title?: string;
}

export function idle(trust: boolean): Status {
  return trust
    ? { text: "mgpu-fix", tooltip: "Files that use Pallas are run when they are opened and saved" }
    : { text: "mgpu-fix: runs nothing", tooltip: "The setting mgpu-fix.trust, in a trusted folder, lets it run files" };
}

export const stopped: Status = { text: "$(error) mgpu-fix", tooltip: "The server does not run; the output says why" };

export function after(
  before: Status,
  token: ProgressToken,
  told: WorkDoneProgressBegin | WorkDoneProgressReport | WorkDoneProgressEnd,
): Status {
  if (told.kind === "begin") {
    return { text: `$(sync~spin) ${told.title}`, tooltip: told.message ?? "Runs the file", token, title: told.title };
  }
  if (token !== before.token || before.title === undefined) {
    return before;
  }
  if (told.kind === "report") {
    return { ...before, tooltip: told.message ?? before.tooltip };
  }
  return { text: `${before.title}: ${told.message ?? "done"}`, tooltip: "What the last run showed" };
}
