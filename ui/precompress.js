/** Writes a .br and a .gz beside each built asset that they make smaller: the control plane serves them as they are. */

import { readdirSync, readFileSync, writeFileSync } from "node:fs";
import { brotliCompressSync, constants, gzipSync } from "node:zlib";

const ASSETS = new URL("../src/lcm/control_plane/static/assets/", import.meta.url);

/** Built once and sent often: the slowest and smallest. */
const CODINGS = {
  br: (content) => brotliCompressSync(content, { params: { [constants.BROTLI_PARAM_SIZE_HINT]: content.length } }),
  gz: (content) => gzipSync(content, { level: 9 }),
};

for (const name of readdirSync(ASSETS)) {
  const content = readFileSync(new URL(name, ASSETS));
  for (const [suffix, compress] of Object.entries(CODINGS)) {
    const compressed = compress(content);
    if (compressed.length < content.length) writeFileSync(new URL(`${name}.${suffix}`, ASSETS), compressed);
  }
}
