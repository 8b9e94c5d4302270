import assert from "node:assert/strict";
import { test } from "node:test";
import { find, NotFound, type Machine } from "../src/command";

function machine(made: Partial<Machine> & { files?: string[] } = {}): Machine {
  return {
    windows: false,
    home: "/home/me",
    path: "/usr/bin:/usr/local/bin",
    isExecutable: async (file) => (made.files ?? []).includes(file),
    interpreter: async () => "/venv/bin/python",
    runs: async () => true,
    ...made,
  };
}

const onPath = { files: ["/usr/local/bin/mgpu-fix"] };

test("the setting comes first", async () => {
  const here = machine({ files: ["/opt/mgpu-fix", "/home/me/bin/mgpu-fix", "/usr/bin/mgpu-fix"] });
  assert.deepEqual(await find("/opt/mgpu-fix", true, here), { command: "/opt/mgpu-fix", args: ["lsp"] });
  assert.deepEqual(await find("~/bin/mgpu-fix", false, here), { command: "/home/me/bin/mgpu-fix", args: ["lsp"] });
});

test("a setting that leads nowhere is told, and nothing else is started", async () => {
  for (const setting of ["/no/mgpu-fix", "bin/mgpu-fix"]) {
    const here = machine({ files: ["bin/mgpu-fix", "/usr/local/bin/mgpu-fix"] });
    await assert.rejects(find(setting, true, here), (error: Error) => error instanceof NotFound && error.message.includes(setting));
  }
});

test("the interpreter's comes next, and imports nothing from the folder that is open", async () => {
  const asked: string[][] = [];
  const runs = async (_: string, args: string[]) => asked.push(args) > 0;
  const found = await find("", true, machine({ ...onPath, runs }));
  assert.deepEqual(found, { command: "/venv/bin/python", args: ["-P", "-m", "mgpu_fix", "lsp"] });
  assert.deepEqual(asked.map((args) => args[0]), ["-P"]);
});

test("without mgpu-fix in it, without one, and without trust, the one on PATH is taken", async () => {
  const wanted = { command: "/usr/local/bin/mgpu-fix", args: ["lsp"] };
  assert.deepEqual(await find("", true, machine({ ...onPath, runs: async () => false })), wanted);
  assert.deepEqual(await find("", true, machine({ ...onPath, interpreter: async () => undefined })), wanted);
  const never = async () => assert.fail("it was asked");
  assert.deepEqual(await find("", false, machine({ ...onPath, interpreter: never, runs: never })), wanted);
});

test("folders of PATH that are relative are left out", async () => {
  await assert.rejects(find("", false, machine({ path: ".::bin", files: ["mgpu-fix", "bin/mgpu-fix"] })), NotFound);
});

test("where there is none it says in one line what to do", async () => {
  for (const trusted of [true, false]) {
    await assert.rejects(find("", trusted, machine({ runs: async () => false })), /^[^\n]*pip install 'mgpu-fix\[lsp\]'[^\n]*$/);
  }
});
