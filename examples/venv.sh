#!/bin/sh
# The virtual environment .venv of this checkout, with graphc installed from it: made if missing,
# used again if pyproject.toml is what it was.      usage: sh examples/venv.sh [EXTRAS]
set -eu
root=$(cd "$(dirname "$0")/.." && pwd)
venv=$root/.venv
extras=${1:-}

current() { { echo "$root"; cat "$root/pyproject.toml"; } | cmp -s - "$1"; }

if "$venv/bin/python" -c '' 2>/dev/null; then
    for mark in "$venv/installed-$extras"*; do  # more extras serve as well
        if current "$mark"; then exit 0; fi
    done
fi
found=
for python in "${PYTHON:-python3}" python3.13 python3.12 python3.11; do
    if "$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then
        found=$python
        break
    fi
done
if [ -z "$found" ]; then
    echo "graphc needs Python 3.11 or newer; name one with PYTHON=/path/to/python" >&2
    exit 1
fi
echo "installing graphc into $venv"
"$venv/bin/python" -c '' 2>/dev/null || "$found" -m venv --clear "$venv"
"$venv/bin/python" -m pip install --quiet --disable-pip-version-check \
    --editable "$root${extras:+[$extras]}"
# A folder called graphc where Python starts, such as this checkout, hides what an editable install
# adds; a package on the path comes before a mere folder.
packages=$("$venv/bin/python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))')
echo "$root" > "$packages/graphc.pth"
{ echo "$root"; cat "$root/pyproject.toml"; } > "$venv/installed-$extras"
