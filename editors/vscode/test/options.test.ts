import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { test } from "node:test";
import { options } from "../src/options";

interface Setting {
  default: unknown;
  scope?: string;
  markdownDescription?: string;
}

const manifest = JSON.parse(readFileSync("package.json", "utf8")) as {
  capabilities: { untrustedWorkspaces: { supported: unknown; restrictedConfigurations: string[] } };
  contributes: { configuration: { properties: Record<string, Setting> } };
};
const settings = manifest.contributes.configuration.properties;
const defaults = (name: string) => settings[`mgpu-fix.${name}`]?.default;

test("files are run only where the user and Workspace Trust say so", () => {
  const trust = (value: unknown, trusted: boolean) =>
    options((name) => (name === "trust" ? value : defaults(name)), trusted)["trust"];
  assert.equal(trust(true, true), true);
  assert.equal(trust(true, false), false);
  assert.equal(trust(false, true), false);
  assert.equal(trust("true", true), false);
});

test("what is not set is left to the server and pyproject.toml", () => {
  assert.deepEqual(options(defaults, true), { trust: false, run: "", call: "", args: [], reference: "", arch: "" });
  const timeout = (name: string) => (name === "timeout" ? 5 : defaults(name));
  assert.equal(options(timeout, true)["timeout"], 5);
});

test("every setting reaches the server, or is the extension's own", () => {
  const own = ["path", "trace.server"].map((name) => `mgpu-fix.${name}`);
  const handed = Object.keys(options(() => true, true)).map((name) => `mgpu-fix.${name}`);
  assert.deepEqual(Object.keys(settings).sort(), [...handed, ...own].sort());
  assert.ok(Object.values(settings).every((setting) => setting.markdownDescription));
});

test("a folder's own settings cannot say what is started, nor that files are run", () => {
  for (const name of ["mgpu-fix.path", "mgpu-fix.trust"]) {
    assert.equal(settings[name]?.scope, "machine");
  }
  const { supported, restrictedConfigurations } = manifest.capabilities.untrustedWorkspaces;
  assert.equal(supported, "limited");
  assert.ok(restrictedConfigurations.includes("mgpu-fix.run"));
});
