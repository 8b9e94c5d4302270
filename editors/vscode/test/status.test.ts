import assert from "node:assert/strict";
import { test } from "node:test";
import { after, idle } from "../src/status";

test("a run shows while it is on, and what came of it after", () => {
  const begun = after(idle(true), "1", { kind: "begin", title: "mgpu-fix: k.py", cancellable: true });
  assert.deepEqual([begun.text, begun.token], ["$(sync~spin) mgpu-fix: k.py", "1"]);
  const on = after(begun, "1", { kind: "report", message: "trying a fix" });
  assert.deepEqual([on.text, on.tooltip], [begun.text, "trying a fix"]);
  const over = after(on, "1", { kind: "end", message: "clean" });
  assert.deepEqual([over.text, over.token], ["mgpu-fix: k.py: clean", undefined]);
});

test("what an older run tells does not cover the newer one", () => {
  const newer = after(idle(true), "2", { kind: "begin", title: "mgpu-fix: new.py" });
  assert.equal(after(newer, "1", { kind: "end", message: "cancelled" }), newer);
  assert.equal(after(newer, "1", { kind: "report", message: "trying" }), newer);
});

test("where nothing is run it says so", () => {
  assert.match(idle(false).text, /runs nothing/);
  assert.match(idle(false).tooltip, /mgpu-fix\.trust/);
});
