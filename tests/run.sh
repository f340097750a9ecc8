#!/bin/sh
# Every check: ruff, mypy --strict, pytest; fails if any does.   usage: sh tests/run.sh [pytest arguments]
# EXTRAS=zig also installs that extra: tests that need a linker for other machines run instead of skip.
set -eu
root=$(cd "$(dirname "$0")/.." && pwd)
cd "$root"
sh examples/venv.sh "test,examples${EXTRAS:+,$EXTRAS}"
bin=$root/.venv/bin
failed=

echo "== ruff"
"$bin/ruff" check . || failed="$failed ruff"

echo "== mypy"
# passes/ and codegen/ are graphc.passes and graphc.codegen when installed; links show mypy that.
farm=$(mktemp -d)
trap 'rm -rf "$farm"' EXIT
mkdir "$farm/graphc"
ln -s "$root"/graphc/* "$root/passes" "$root/codegen" "$farm/graphc/"
modules=$(find graphc passes codegen -name '*.py' | wc -l | tr -d ' ')
said=$(cd "$farm" && "$bin/mypy" --config-file "$root/pyproject.toml" \
    --cache-dir "$root/.mypy_cache" --strict -p graphc) || failed="$failed mypy"
echo "$said"
case $said in
*" $modules source file"*) ;;
*) echo "mypy did not check all $modules modules" && failed="$failed mypy-count" ;;
esac

echo "== pytest"
"$bin/pytest" -n 2 "$@" || failed="$failed pytest"

if [ -n "$failed" ]; then
    echo "failed:$failed"
    exit 1
fi
echo "all checks passed"
