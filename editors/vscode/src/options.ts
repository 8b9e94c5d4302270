// What the server is told of the editor's settings.

/** As docs/editors.md has them. */
const NAMES = ["trust", "run", "call", "args", "reference", "unsafeFixes", "arch", "timeout"];

/**
 * The settings that are set, as `get` has them. Files are run only where the user's settings and Workspace Trust both
 * say so.
 */
export function options(get: (name: string) => unknown, trusted: boolean): Record<string, unknown> {
  const given = NAMES.map((name) => [name, get(name)] as const).filter(([, value]) => value !== null && value !== undefined);
  return { ...Object.fromEntries(given), trust: trusted && get("trust") === true };
}
