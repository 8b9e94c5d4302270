// The extension: keeps one language server running, and shows what it does.

import { createInterface } from "node:readline";
import {
  commands,
  StatusBarAlignment,
  window,
  workspace,
  type ExtensionContext,
  type LogOutputChannel,
  type StatusBarItem,
} from "vscode";
import {
  CloseAction,
  ErrorAction,
  LanguageClient,
  State,
  WorkDoneProgressCancelNotification,
  type ErrorHandler,
} from "vscode-languageclient/node";
import { find, type Command } from "./command";
import { environments, machine } from "./machine";
import { options } from "./options";
import { after, idle, stopped, type Status } from "./status";

const NAME = "mgpu-fix";

/** One that says nothing of its own while it starts: whoever starts it does. */
class Client extends LanguageClient {
  override error(message: string, data?: unknown, show: boolean | "force" = true): void {
    super.error(message, data, this.isRunning() && show);
  }
}

class Extension {
  private client: Client | undefined;
  private status: Status = idle(false);
  private lastWords = "";
  /** The server is started and stopped by one at a time. */
  private queue: Promise<void> = Promise.resolve();

  constructor(
    private readonly channel: LogOutputChannel,
    private readonly item: StatusBarItem,
  ) {}

  restart(): Promise<void> {
    this.queue = this.queue.then(async () => {
      await this.halt();
      await this.start();
    });
    return this.queue;
  }

  stop(): Promise<void> {
    this.queue = this.queue.then(() => this.halt());
    return this.queue;
  }

  async cancel(): Promise<void> {
    if (this.client && this.status.token !== undefined) {
      await this.client.sendNotification(WorkDoneProgressCancelNotification.type, { token: this.status.token });
    }
  }

  /** Say whether files are run, where none is. */
  rest(): void {
    if (this.client && this.status.token === undefined) {
      this.show(idle(given()["trust"] === true));
    }
  }

  private show(status: Status): void {
    this.status = status;
    this.item.text = status.text;
    this.item.tooltip = status.tooltip;
    this.item.show();
  }

  private async halt(): Promise<void> {
    const client = this.client;
    this.client = undefined;
    if (client?.needsStop()) {
      await client.stop().catch((error: unknown) => this.channel.warn(`The server did not end well: ${String(error)}`));
    }
  }

  private async start(): Promise<void> {
    this.lastWords = "";
    try {
      const setting = workspace.getConfiguration(NAME).get("path", "");
      const command = await find(setting, workspace.isTrusted, machine);
      this.channel.info([command.command, ...command.args].join(" "));
      this.client = this.clientOf(command);
      await this.client.start();
      // A server that ends at once is no error to the client.
      if (!this.client.isRunning()) {
        throw new Error(`${command.command} does not start. The output says more.`);
      }
    } catch (error) {
      this.client = undefined;
      this.show(stopped);
      // Whether it is answered or not, the server can be started anew.
      void this.complain(this.lastWords || (error instanceof Error ? error.message : String(error)));
    }
  }

  private clientOf(command: Command): Client {
    let usual: ErrorHandler | undefined;
    const client = new Client(NAME, NAME, command, {
      documentSelector: [{ scheme: "file", language: "python" }],
      outputChannel: this.channel,
      stdioOptions: {
        stdout: () => {},
        stderr: (input) =>
          createInterface({ input }).on("line", (line) => {
            this.lastWords = line;
            this.channel.error(line);
          }),
      },
      initializationFailedHandler: () => false,
      errorHandler: {
        error: (...what) => usual?.error(...what) ?? { action: ErrorAction.Shutdown, handled: true },
        // One that never ran would not run the next time.
        closed: () => usual?.closed() ?? { action: CloseAction.DoNotRestart, handled: true },
      },
      middleware: {
        workspace: {
          // All of the settings, and no initializationOptions: so one that is removed is gone.
          configuration: (asked) => asked.items.map((item) => (item.section === NAME ? given() : null)),
        },
        // The status bar has it already.
        handleWorkDoneProgress: (token, told) => this.show(after(this.status, token, told)),
      },
    });
    client.onDidChangeState(({ newState }) => {
      if (newState === State.Running) {
        usual ??= client.createDefaultErrorHandler();
        this.show(idle(given()["trust"] === true));
      } else if (newState !== State.Starting && client === this.client) {
        this.show(stopped);
      }
    });
    return client;
  }

  private async complain(why: string): Promise<void> {
    this.channel.error(why);
    const answer = await window.showErrorMessage(why, "Open Settings", "Show Output");
    if (answer === "Open Settings") {
      await commands.executeCommand("workbench.action.openSettings", "mgpu-fix.path");
    } else if (answer === "Show Output") {
      this.channel.show();
    }
  }
}

/** What the server is told. */
function given(): Record<string, unknown> {
  const settings = workspace.getConfiguration(NAME);
  return options((name) => settings.get(name), workspace.isTrusted);
}

let extension: Extension | undefined;

export async function activate(context: ExtensionContext): Promise<void> {
  const channel = window.createOutputChannel(NAME, { log: true });
  const item = window.createStatusBarItem(NAME, StatusBarAlignment.Left);
  item.name = NAME;
  item.command = "mgpu-fix.showOutput";
  const own = (extension = new Extension(channel, item));
  const restart = () => own.restart();
  context.subscriptions.push(
    channel,
    item,
    commands.registerCommand("mgpu-fix.restart", restart),
    commands.registerCommand("mgpu-fix.cancel", () => own.cancel()),
    commands.registerCommand("mgpu-fix.showOutput", () => channel.show()),
    workspace.onDidGrantWorkspaceTrust(restart),
    // The server asks for the others itself.
    workspace.onDidChangeConfiguration((event) => {
      if (event.affectsConfiguration("mgpu-fix.path")) {
        void restart();
      } else if (event.affectsConfiguration("mgpu-fix.trust")) {
        own.rest();
      }
    }),
  );
  await restart();
  const known = await environments();
  if (known) {
    context.subscriptions.push(known.onDidChangeActiveEnvironmentPath(restart));
  }
}

export async function deactivate(): Promise<void> {
  await extension?.stop();
}
