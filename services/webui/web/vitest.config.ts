import { defineConfig } from "vitest/config";

// Most tests need no document, and making one takes ten times as long as such a test file. Those that need one begin
// with `// @vitest-environment jsdom`. Files share their process and the modules that they import: they test functions.
export default defineConfig({
  test: {
    environment: "node",
    include: ["src/**/*.test.ts", "src/**/*.test.tsx"],
    isolate: false,
  },
});
