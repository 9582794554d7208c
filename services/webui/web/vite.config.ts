import react from "@vitejs/plugin-react";
import { defineConfig } from "vite";

// The gateway is the one origin in production; `npm run dev` forwards to it.
const gateway = "http://127.0.0.1:8420";

export default defineConfig({
  plugins: [react()],
  server: { proxy: { "/api": gateway, "/login": gateway } },
  build: {
    outDir: "../src/fairlead_webui/dist",
    emptyOutDir: true,
    target: "es2023",
    assetsInlineLimit: 0,
    modulePreload: { polyfill: false },
    chunkSizeWarningLimit: 300,
  },
});
