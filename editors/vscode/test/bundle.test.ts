// The bundle as VS Code loads it, with the real server where there is one.

import assert from "node:assert/strict";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { once } from "node:events";
import Module, { createRequire } from "node:module";
import { tmpdir } from "node:os";
import { join, resolve } from "node:path";
import { test } from "node:test";
import { editor, type Found } from "./vscode";

const python = process.env["MGPU_FIX_PYTHON"];
const TEXT = `import jax
from jax.experimental.pallas import mosaic_gpu as plgpu

params = plgpu.GPUCompilerParams()
`;

test("the server's findings reach the editor", { timeout: 60_000, skip: python ? false : "MGPU_FIX_PYTHON names no Python" }, async (t) => {
  const folder = mkdtempSync(join(tmpdir(), "mgpu-fix-"));
  writeFileSync(join(folder, "k.py"), TEXT);
  t.after(() => rmSync(folder, { recursive: true }));
  const { vscode, told, set } = editor(folder, TEXT, {}, python ?? "");
  const loader = Module as unknown as { _load(name: string, ...rest: unknown[]): unknown };
  const usual = loader._load;
  loader._load = (name, ...rest) => (name === "vscode" ? vscode : usual(name, ...rest));
  const extension = createRequire(resolve("package.json"))("./dist/extension.js");
  const found = once(told, "diagnostics");
  const shown: string[] = [];
  told.on("status", (text) => shown.push(text));
  await extension.activate({ subscriptions: [] });
  try {
    const [diagnostics] = (await found) as [Found[]];
    assert.deepEqual(
      diagnostics.map((d) => [d.code.value, d.source, d.line]),
      [["MGF902", "mgpu-fix", 3]],
    );
    assert.deepEqual(shown, ["mgpu-fix: runs nothing"]);
    // A setting that the server cannot be told starts it anew.
    const message = once(told, "message");
    set("path", "/no/mgpu-fix");
    assert.match(String(await message), /mgpu-fix\.path is \/no\/mgpu-fix/);
    assert.deepEqual(shown.slice(1), ["$(error) mgpu-fix"]);
  } finally {
    await extension.deactivate();
    loader._load = usual;
  }
});
