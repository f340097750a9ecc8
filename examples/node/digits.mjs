// Trains the network of digits.py in Node, with the WebAssembly that graphc compiled:
//
//     graphc compile digits.py:step digits.py:predict --target wasm32 -o build/digits.wasm
//     gzip -dc digits.csv.gz > build/digits.csv
//     node node/digits.mjs build/digits.wasm build/digits.csv [digits.state]
import { readFile, writeFile } from "node:fs/promises";
import { load } from "./graphc.mjs";

const IMAGES = 1797, PIXELS = 64, HELD_OUT = 599, BATCH = 32, EPOCHS = 30;
const [wasm, csv, saved] = process.argv.slice(2);

const lines = (await readFile(csv, "ascii")).trim().split("\n").map((l) => l.split(",").map(Number));
const images = Float32Array.from(lines.flatMap((l) => l.slice(0, PIXELS)));
const digits = BigInt64Array.from(lines.map((l) => BigInt(l[PIXELS])));

// Marsaglia's xorshift64 and Fisher and Yates's shuffle, as in digits.c.
let s = 1n;
function shuffle(a) {
  for (let i = a.length - 1; i > 0; i--) {
    s ^= BigInt.asUintN(64, s << 13n);
    s ^= s >> 7n;
    s ^= BigInt.asUintN(64, s << 17n);
    const j = Number((s >> 33n) % BigInt(i + 1));
    [a[i], a[j]] = [a[j], a[i]];
  }
}

// Rows of the data, side by side.
function take(rows) {
  const x = new Float32Array(rows.length * PIXELS), y = new BigInt64Array(rows.length);
  rows.forEach((row, i) => {
    x.set(images.subarray(row * PIXELS, (row + 1) * PIXELS), i * PIXELS);
    y[i] = digits[row];
  });
  return { x, y };
}

const order = Uint16Array.from({ length: IMAGES }, (_, i) => i);
shuffle(order);
const train = order.subarray(HELD_OUT), heldOut = order.subarray(0, HELD_OUT);

const lib = await load(await readFile(wasm));
const state = lib.newState();
const start = performance.now();
for (let epoch = 1; epoch <= EPOCHS; epoch++) {
  let total = 0;
  shuffle(train);
  for (let i = 0; i < train.length; i += BATCH) {
    const rows = train.subarray(i, i + BATCH); // the last batch is smaller
    const { loss } = lib.call("step", state, take(rows), { batch: rows.length });
    total += loss[0] * rows.length;
  }
  if (epoch % 10 === 0) console.log(`epoch ${epoch}: loss ${(total / train.length).toFixed(6)}`);
}
console.log(`trained in ${((performance.now() - start) / 1000).toFixed(2)} s`);

const { x, y } = take(heldOut);
const { digit } = lib.call("predict", state, { x }, { batch: HELD_OUT });
const right = digit.filter((d, i) => d === y[i]).length;
console.log(`test accuracy: ${((100 * right) / HELD_OUT).toFixed(1)}%`);
if (saved) await writeFile(saved, state.pack());
