// Bundle the tests, as the plugin itself is bundled, and run them with Node's own runner.
import { spawnSync } from "node:child_process";
import { mkdtempSync, readdirSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";
import { buildSync } from "esbuild";

const here = dirname(fileURLToPath(import.meta.url));
const out = join(here, "../../../.cache/plugin-test");
const names = readdirSync(here).filter((name) => name.endsWith(".test.ts"));

rmSync(out, { recursive: true, force: true });
buildSync({
  entryPoints: names.map((name) => join(here, name)),
  bundle: true,
  format: "esm",
  platform: "node",
  target: "es2022",
  outdir: out,
  outExtension: { ".js": ".mjs" },
  sourcemap: "inline",
  logLevel: "warning",
});
const files = names.map((name) => join(out, name.replace(/\.ts$/, ".mjs")));
// Sockets have short paths only, so that the tests' folders lie in the temporary one; all go with it.
const folder = mkdtempSync(join(tmpdir(), "oc-"));
const run = spawnSync(process.execPath, ["--enable-source-maps", "--test", ...files], {
  stdio: "inherit",
  env: { ...process.env, TMPDIR: folder },
});
rmSync(folder, { recursive: true, force: true });
process.exit(run.status ?? 1);
