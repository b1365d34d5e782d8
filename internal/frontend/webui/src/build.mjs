// Builds the console: node build.mjs [DIRECTORY]. The same sources give the same bytes.
import { copyFile, mkdir, readFile, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { build } from "esbuild";

const here = fileURLToPath(new URL(".", import.meta.url));
const out = process.argv[2] ?? join(here, "..", "dist");
await mkdir(out, { recursive: true });
await build({
  absWorkingDir: here,
  entryPoints: { app: "main.tsx" },
  outdir: out,
  bundle: true,
  minify: true,
  target: "es2022",
  format: "esm",
  charset: "utf8",
  legalComments: "none",
  jsx: "automatic",
  jsxImportSource: "preact",
  logLevel: "warning",
});
for (const name of ["index.html", "icon.svg"]) {
  await copyFile(join(here, name), join(out, name));
}
let licences = "The console contains these libraries.\n";
for (const name of ["preact", "uplot"]) {
  const folder = join(here, "node_modules", name);
  const { version } = JSON.parse(await readFile(join(folder, "package.json"), "utf8"));
  licences += `\n${name} ${version}\n\n${await readFile(join(folder, "LICENSE"), "utf8")}`;
}
await writeFile(join(out, "licences.txt"), licences);
