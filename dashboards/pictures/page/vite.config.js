import { defineConfig } from "vite";

export default defineConfig({
  base: "./",
  build: { target: "esnext", minify: false, modulePreload: false, chunkSizeWarningLimit: 100000 },
  define: { "process.env.NODE_ENV": '"production"', "process.env": "{}", global: "globalThis" },
});
