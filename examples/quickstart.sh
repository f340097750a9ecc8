#!/bin/sh
# Handwritten digits, from a fresh checkout: installs graphc into .venv, compiles the training step
# and the predictor of digits.py into build/libdigits.so, and trains from C (digits.c). Where there
# is no C compiler, digits.py trains with the same functions from Python.
set -eu
root=$(cd "$(dirname "$0")/.." && pwd)
here=$root/examples
out=$root/build
cc=${CC:-cc}
sh "$here/venv.sh"
bin=$root/.venv/bin
mkdir -p "$out"

if [ "$(uname -s)" != Linux ]; then
    echo "shared libraries are written on Linux only so far: training from Python instead"
elif ! { echo '#include <stdio.h>'; echo 'int main(void) { return 0; }'; } |
    $cc -x c -o "$out/probe" - 2>/dev/null
then
    echo "no C compiler was found ($cc): training from Python instead"
else
    "$bin/graphc" compile "$here/digits.py:step" "$here/digits.py:predict" -o "$out/libdigits.so"
    $cc -std=c11 -O2 "$here/digits.c" -I "$out" -L "$out" -ldigits -Wl,-rpath,'$ORIGIN' \
        -o "$out/digits"
    "$bin/python" -m gzip -d - < "$here/digits.csv.gz" > "$out/digits.csv"
    exec "$out/digits" "$out/digits.csv"
fi
exec "$bin/python" "$here/digits.py"
