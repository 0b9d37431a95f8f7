import { defineConfig, type Plugin } from "vite";

/** Holds the first paint until the script has chosen the theme: no flash of the wrong one. */
function renderAfterTheme(): Plugin {
  return {
    name: "render-after-theme",
    transformIndexHtml: {
      order: "post",
      handler: (html) => html.replace('<script type="module"', '<script type="module" blocking="render"'),
    },
  };
}

export default defineConfig({
  plugins: [renderAfterTheme()],
  build: {
    outDir: "../src/lcm/control_plane/static",
    emptyOutDir: true,
    // The page's content security policy allows files of its own origin and nothing inline.
    assetsInlineLimit: 0,
    modulePreload: { polyfill: false },
    // The oldest browsers with everything the styles use, light-dark() being the youngest.
    target: ["chrome123", "firefox121", "safari17.5"],
  },
  server: {
    proxy: { "/api": "http://127.0.0.1:8080" },
  },
});
