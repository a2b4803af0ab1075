// Bundles the page into ./dist, with the icons of Grafana's library and the font that Grafana uses.
import { cpSync, mkdirSync, readFileSync, rmSync } from "node:fs";
import { build } from "esbuild";

const { dependencies } = JSON.parse(readFileSync("package.json", "utf8"));
const library = (name) => `./node_modules/@grafana/${name}/dist/cjs/index.cjs`;

rmSync("dist", { recursive: true, force: true });
await build({
  entryPoints: ["draw.jsx"],
  outdir: "dist",
  bundle: true,
  // Of its two forms the one whose imports a bundler cannot mistake.
  alias: { "@grafana/data": library("data"), "@grafana/ui": library("ui") },
  loader: { ".svg": "file", ".ttf": "file" },
  define: {
    __UI__: JSON.stringify(dependencies["@grafana/ui"]),
    "process.env.NODE_ENV": '"production"',
    "process.env": "{}",
    global: "globalThis",
  },
});
cpSync("index.html", "dist/index.html");
cpSync("node_modules/@grafana/ui/dist/public", "dist/public", { recursive: true });
mkdirSync("dist/public/fonts/inter", { recursive: true });
for (const [name, weight] of [["Regular", 400], ["Medium", 500]]) {
  const file = `node_modules/@fontsource/inter/files/inter-latin-${weight}-normal.woff2`;
  cpSync(file, `dist/public/fonts/inter/Inter-${name}.woff2`);
}
