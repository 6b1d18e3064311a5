// Adds to package-lock.json the optional platform packages that npm left out.
//
// npm writes an optional package into the lock only if the registry answered for it, and `npm ci` then
// refuses the lock because it is incomplete. Registry mirrors often carry only the platforms that were
// asked of them. Which machine a package is for stands in its name, so that the entry can be written
// without its manifest; on other machines npm passes over it.

import { readFileSync, writeFileSync } from "node:fs";

const file = "package-lock.json";
const lock = JSON.parse(readFileSync(file, "utf8"));
const systems = { darwin: "darwin", linux: "linux", windows: "win32", win32: "win32" };
const added = [];

for (const owner of Object.values(lock.packages)) {
  for (const [name, version] of Object.entries(owner.optionalDependencies ?? {})) {
    const key = `node_modules/${name}`;
    const parts = name.split(/[-/]/);
    const os = parts.map((part) => systems[part]).find(Boolean);
    const cpu = parts.find((part) => part === "x64" || part === "arm64");
    if (lock.packages[key] !== undefined || os === undefined || cpu === undefined) continue;
    lock.packages[key] = {
      version,
      cpu: [cpu],
      dev: true,
      ...(os === "linux" ? { libc: [parts.includes("musl") ? "musl" : "glibc"] } : {}),
      license: owner.license,
      optional: true,
      os: [os],
    };
    added.push(name);
  }
}

lock.packages = Object.fromEntries(
  Object.entries(lock.packages).sort(([a], [b]) =>
    a === "" ? -1 : b === "" ? 1 : a.localeCompare(b, "en"),
  ),
);
writeFileSync(file, `${JSON.stringify(lock, null, 2)}\n`);
console.log(
  added.length === 0
    ? "complete_lock: nothing missing"
    : `complete_lock: added ${added.join(", ")}`,
);
