// Runs calls of a wasm library: node wasm_calls.mjs LIBRARY.wasm JOB.json INPUT OUTPUT
//
// JOB: [{ name, arena, inputs: [bytes], outputs: [bytes], dims: [size], state: bytes }], with the
// bytes of all inputs one after another in INPUT. To OUTPUT go, per call, its status and whether all
// was well, as int64, and the bytes of its outputs and of the state. Every argument and the arena,
// of exactly the promised size, stand between bytes that must be left alone; `arena: false` passes
// none.
import { readFileSync, writeFileSync } from "node:fs";

const [wasm, job, input, output] = process.argv.slice(2);
const module = new WebAssembly.Module(readFileSync(wasm));
const imports = WebAssembly.Module.imports(module);
if (imports.length) throw new Error(`imports ${JSON.stringify(imports)}`);
const c = new WebAssembly.Instance(module).exports;
const given = readFileSync(input), out = [];
const { prefix, functions } = JSON.parse(
  text(c[Object.keys(c).find((n) => n.endsWith("_descriptor"))]()));
const GUARD = 64, MARK = 0xa5;
let at = 0;

function text(p) {
  const memory = new Uint8Array(c.memory.buffer);
  return new TextDecoder().decode(memory.slice(p, memory.indexOf(0, p)));
}

function guarded(bytes) {
  const p = c.malloc(bytes + 2 * GUARD) >>> 0;
  if (!p) throw new Error(`no memory for ${bytes} bytes`);
  new Uint8Array(c.memory.buffer, p, bytes + 2 * GUARD).fill(MARK);
  return { p: p + GUARD, bytes };
}

function touched({ p, bytes }) {
  const left = new Uint8Array(c.memory.buffer, p - GUARD, GUARD);
  const right = new Uint8Array(c.memory.buffer, p + bytes, GUARD);
  return [...left, ...right].some((b) => b !== MARK);
}

for (const call of JSON.parse(readFileSync(job, "utf8"))) {
  const f = functions.find((g) => g.name === call.name);
  const held = call.state ? [guarded(call.state)] : [];
  if (held.length) c[`${prefix}_init`](held[0].p);
  for (const bytes of call.inputs) {
    const g = guarded(bytes);
    new Uint8Array(c.memory.buffer, g.p, bytes).set(given.subarray(at, at + bytes));
    at += bytes;
    held.push(g);
  }
  const outputs = call.outputs.map(guarded);
  held.push(...outputs);
  const dims = call.dims.map(BigInt);
  const promised = Number(c[f.arena](...dims));
  const arena = call.arena ? guarded(Math.max(0, promised)) : { p: 0 };
  const status = c[f.c](...held.map((g) => g.p), ...dims, arena.p);
  const kept = call.state ? [...outputs, held[0]] : outputs;
  if (call.arena) held.push(arena);
  const good = !held.some(touched);
  out.push(Buffer.from(BigInt64Array.of(BigInt(status), BigInt(good)).buffer));
  for (const g of kept) out.push(Buffer.from(new Uint8Array(c.memory.buffer, g.p, g.bytes).slice()));
  for (const g of held) c.free(g.p - GUARD);
}
writeFileSync(output, Buffer.concat(out));
