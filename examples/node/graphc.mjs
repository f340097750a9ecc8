// Calls a .wasm library that graphc wrote, in Node or a browser, without packages. Copy this file.
//
//     const lib = await load(bytes);                // an ArrayBuffer or Buffer of the module
//     const state = lib.newState();                 // as the library's init sets it
//     const { loss } = lib.call("step", state, { x, y }, { batch: 32 });
//     const saved = state.pack();                   // the bytes of a state file
//
// Arrays are typed arrays in C order, by dtype: see ARRAYS. int64 are BigInts in JavaScript, so an
// array of them is a BigInt64Array; sizes are plain numbers here and become BigInts in the call.

const ARRAYS = {
  bool: Uint8Array, i8: Int8Array, i16: Int16Array, i32: Int32Array, i64: BigInt64Array,
  u8: Uint8Array, u16: Uint16Array, u32: Uint32Array, u64: BigUint64Array,
  f16: Uint16Array, bf16: Uint16Array, // their bits
  f32: Float32Array, f64: Float64Array,
};
const OPERATIONS = {
  add: (a, b) => a + b, mul: (a, b) => a * b, max: Math.max, min: Math.min,
  floordiv: (a, b) => Math.floor(a / b), mod: (a, b) => a - b * Math.floor(a / b),
};

// A size of the descriptor: a number, the name of a dimension, or [operation, a, b].
function evaluate(size, dims) {
  if (typeof size === "number") return size;
  if (Array.isArray(size))
    return OPERATIONS[size[0]](evaluate(size[1], dims), evaluate(size[2], dims));
  if (!Number.isSafeInteger(dims[size])) throw new TypeError(`the dimension ${size} is missing`);
  return dims[size];
}

const elements = (type, dims) => type.shape.reduce((n, s) => n * evaluate(s, dims), 1);
const bytesOf = (array) => new Uint8Array(array.buffer, array.byteOffset, array.byteLength);

export async function load(bytes) {
  const { instance } = await WebAssembly.instantiate(bytes, {}); // it imports nothing
  return new Library(instance.exports);
}

class Library {
  constructor(exports) {
    this.c = exports; // the C functions, their memory, malloc and free
    const name = Object.keys(exports).find((e) => e.endsWith("_descriptor"));
    this.descriptor = JSON.parse(this.text(exports[name]()));
    this.prefix = this.descriptor.prefix;
    this.functions = new Map(this.descriptor.functions.map((f) => [f.name, f]));
    this.room = 0; // where arguments and the arena stand, kept from call to call
    this.roomBytes = 0;
  }

  // The C string at an address.
  text(at) {
    const memory = new Uint8Array(this.c.memory.buffer);
    return new TextDecoder().decode(memory.slice(at, memory.indexOf(0, at)));
  }

  // A view of memory. It is good until memory grows, which any malloc may cause.
  view(Type, at, length) {
    return new Type(this.c.memory.buffer, at, length);
  }

  malloc(bytes) {
    const at = this.c.malloc(bytes) >>> 0; // addresses are unsigned
    if (!at) throw new RangeError(`out of memory: ${bytes} bytes`);
    return at;
  }

  check(status) {
    if (status) throw new Error(this.text(this.c[`${this.prefix}_strerror`](status)));
  }

  newState() {
    return new State(this);
  }

  // The outputs, by name, of a function on inputs by name.
  call(name, state, inputs, dims = {}) {
    const f = this.functions.get(name);
    if (!f) throw new TypeError(`there is no function ${name}`);
    const args = [];
    let bytes = 0;
    for (const [role, list] of [["in", f.inputs], ["out", f.outputs]]) {
      for (const type of list) {
        const Type = ARRAYS[type.dtype], length = elements(type, dims);
        if (role === "in" && !(inputs[type.name] instanceof Type && inputs[type.name].length === length))
          throw new TypeError(`${name}: ${type.name} must be a ${Type.name} of ${length} elements`);
        args.push({ role, type, Type, length, at: bytes });
        bytes += Math.ceil((length * Type.BYTES_PER_ELEMENT) / 16) * 16;
      }
    }
    const sizes = f.dims.map((d) => BigInt(evaluate(d.name, dims)));
    const arena = Number(this.c[f.arena](...sizes));
    if (arena < 0) throw new RangeError(`${name}: sizes that cannot be`);
    if (bytes + arena > this.roomBytes) {
      this.c.free(this.room);
      this.room = this.roomBytes = 0;
      this.room = this.malloc(bytes + arena);
      this.roomBytes = bytes + arena;
    }
    const pointers = args.map((a) => this.room + a.at);
    args.forEach((a, k) => {
      if (a.role === "in") this.view(a.Type, pointers[k], a.length).set(inputs[a.type.name]);
    });
    const first = f.state === "none" ? [] : [state.at];
    this.check(this.c[f.c](...first, ...pointers, ...sizes, this.room + bytes));
    const out = {};
    args.forEach((a, k) => {
      if (a.role === "out") out[a.type.name] = this.view(a.Type, pointers[k], a.length).slice();
    });
    return out;
  }
}

// What the functions of a library update. `free` gives its memory back.
class State {
  constructor(library) {
    this.library = library;
    this.layout = library.descriptor.state;
    this.at = library.malloc(Math.max(1, this.layout.bytes));
    library.c[`${library.prefix}_init`](this.at);
  }

  // A variable's elements, as a copy.
  get(name) {
    const v = this.layout.variables.find((v) => v.name === name);
    return this.library.view(ARRAYS[v.dtype], this.at + v.offset, elements(v, {})).slice();
  }

  // The bytes of a state file, as digits_save_state writes it elsewhere.
  pack() {
    const { library } = this, bytes = this.layout.file_bytes;
    const at = library.malloc(bytes);
    library.c[`${library.prefix}_pack_state`](this.at, at);
    const out = library.view(Uint8Array, at, bytes).slice();
    library.c.free(at);
    return out;
  }

  // Takes the bytes of a state file; refuses others, and then stays as it was.
  unpack(file) {
    const { library } = this, bytes = bytesOf(file);
    const at = library.malloc(Math.max(1, bytes.length));
    library.view(Uint8Array, at, bytes.length).set(bytes);
    const status = library.c[`${library.prefix}_unpack_state`](this.at, at, BigInt(bytes.length));
    library.c.free(at);
    library.check(status);
  }

  free() {
    this.library.c.free(this.at);
    this.at = 0;
  }
}
