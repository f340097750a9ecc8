"""Call a library that graphc wrote from any Python with NumPy; graphc need not be installed.

    from load_library import Library

    lib = Library("libdigits.so")
    lib.step(images, labels)["loss"]         # inputs in order; a dict if outputs were declared so
    lib.state["w1"]                          # the variables, as views into the state struct

Copy this file beside your program. It reads the library's descriptor (codegen/README.md tells its
format). Inputs convert to their dtype by NumPy's rules; `graphc.load` is the version with kinder
words. Run as a program, it prints what a library holds: python load_library.py libdigits.so
"""

import ctypes
import json
import mmap
import os
import sys

import numpy as np

OPERATIONS = {
    "add": lambda a, b: a + b, "mul": lambda a, b: a * b, "floordiv": lambda a, b: a // b,
    "mod": lambda a, b: a % b, "max": max, "min": min,
}
DTYPES = {
    "bool": np.bool_, "f16": np.float16, "f32": np.float32, "f64": np.float64,
    "bf16": np.uint16,  # its bits: NumPy has no such type
    **{f"i{b}": f"int{b}" for b in (8, 16, 32, 64)},
    **{f"u{b}": f"uint{b}" for b in (8, 16, 32, 64)},
}


def size(x, dims):
    """The value of a size: a number, a dimension's name, or [operation, a, b]."""
    if isinstance(x, list):
        return OPERATIONS[x[0]](size(x[1], dims), size(x[2], dims))
    return dims[x] if isinstance(x, str) else x


def descriptor(path):
    """What a library says about itself, from its file."""
    with open(path, "rb") as f, mmap.mmap(f.fileno(), 0, access=mmap.ACCESS_READ) as data:
        start = data.find(b'{"format":"graphc-library",')
        if start < 0:
            raise ValueError(f"{path} is not a library that graphc wrote")
        found = json.loads(data[start : data.find(b"\0", start)])
    if found["version"] != 1:
        raise ValueError(f"{path} has a descriptor of version {found['version']}, not 1")
    return found


class Library:
    """A loaded library: its functions are attributes, `state` maps variables to views."""

    def __init__(self, path):
        self.descriptor = d = descriptor(path)
        self.c = ctypes.CDLL(os.path.abspath(path))
        self.explain = self.c[f"{d['prefix']}_strerror"]
        self.explain.restype = ctypes.c_char_p
        self.state, self.address = {}, None
        if d["state"] is not None:
            self.raw = np.zeros(d["state"]["bytes"], np.uint8)
            self.address = ctypes.c_void_p(self.raw.ctypes.data)
            for v in d["state"]["variables"]:
                dtype = np.dtype(DTYPES[v["dtype"]])
                count = int(np.prod(v["shape"], dtype=np.int64))
                part = self.raw[v["offset"] : v["offset"] + count * dtype.itemsize]
                self.state[v["name"]] = part.view(dtype).reshape(v["shape"])
            self.call("init")
        for f in d["functions"]:
            setattr(self, f["name"], Function(self, f))

    def call(self, name, *args):
        """A C function that takes the state first; RuntimeError for a status code."""
        status = self.c[f"{self.descriptor['prefix']}_{name}"](self.address, *args)
        if name != "init" and status:
            raise RuntimeError(self.explain(status).decode())

    def save_state(self, path):
        """To a file that C and graphc.load_state read."""
        self.call("save_state", os.fsencode(path))

    def load_state(self, path):
        """From such a file; if it is refused, nothing changes."""
        self.call("load_state", os.fsencode(path))


class Function:
    """A function of a library; dimensions that no input shows are given by name."""

    def __init__(self, library, data):
        self.library, self.data, self.c = library, data, library.c[data["c"]]

    def __call__(self, *inputs, **dims):
        d = self.data
        if len(inputs) != len(d["inputs"]):
            raise TypeError(f"{d['name']} takes {len(d['inputs'])} inputs, got {len(inputs)}")
        arrays = [
            np.asarray(a, order="C").astype(DTYPES[t["dtype"]], casting="same_kind", copy=False)
            for a, t in zip(inputs, d["inputs"], strict=True)
        ]
        for a, t in zip(arrays, d["inputs"], strict=True):
            if a.ndim != len(t["shape"]):
                raise ValueError(f"{d['name']}: {t['name']} must have the shape {t['shape']}")
            for n, s in zip(a.shape, t["shape"], strict=True):
                if isinstance(s, str):
                    dims.setdefault(s, n)
        for a, t in zip(arrays, d["inputs"], strict=True):
            if a.shape != tuple(size(s, dims) for s in t["shape"]):
                raise ValueError(
                    f"{d['name']}: {t['name']} must have the shape {t['shape']}, got {a.shape}"
                )
        outputs = [
            np.empty([size(s, dims) for s in t["shape"]], DTYPES[t["dtype"]]) for t in d["outputs"]
        ]
        status = self.c(
            *[self.library.address] * (d["state"] != "none"),
            *(ctypes.c_void_p(a.ctypes.data) for a in (*arrays, *outputs)),
            *(ctypes.c_int64(dims[q["name"]]) for q in d["dims"]), None,
        )
        if status:
            raise RuntimeError(self.library.explain(status).decode())
        if d["returns"] == "dict":
            return {t["name"]: a for t, a in zip(d["outputs"], outputs, strict=True)}
        return {"none": None, "one": outputs[:1] and outputs[0], "tuple": tuple(outputs)}.get(
            d["returns"], outputs
        )


if __name__ == "__main__":
    for function in descriptor(sys.argv[1])["functions"]:
        takes, gives = (
            ", ".join(f"{a['name']}: {a['dtype']}{a['shape']}" for a in function[key])
            for key in ("inputs", "outputs")
        )
        print(f"{function['name']}({takes}) -> {gives}")
