#!/usr/bin/env bash
# Resolves every lock of this folder anew (needs uv and a package index). Names and hashes only: no addresses are written.
# With --upgrade, newer versions are taken; without, versions that the locks name already are kept.
set -euo pipefail
cd "$(dirname "$0")"
unset "${!PIP_@}" UV_FIND_LINKS UV_INDEX UV_EXTRA_INDEX_URL

declare -A platform=([linux]=x86_64-manylinux_2_34 [win]=x86_64-pc-windows-msvc)

lock() { # INPUT SYSTEM PYTHON [OPTIONS]
    local output="$1-$2-py${3/./}.txt"
    echo "$output"
    uv pip compile --quiet --no-config --generate-hashes --no-annotate --no-header --only-binary :all: \
        --no-python-downloads --python-platform "${platform[$2]}" --python-version "$3" \
        "${@:4}" "$1.in" --output-file "$output" "${UPGRADE[@]}"
}

pins() { # LOCKS...
    cat "$@" | grep -E '^[a-z0-9-]+==' | sed 's/ .*//'
}

leave_out() { # LOCK OTHER
    # Drops from a lock what another one has.
    awk '/^[^ ]/ { name = $1; sub(/==.*/, "", name) } FNR == NR { has[name]; next } !(name in has)' "$2" "$1" \
        > "$shared.named"
    mv "$shared.named" "$1"
}

name_cuda_build() { # PROFILE PYTHON
    # The index resolves the CPU build of the same release, which needs the same packages; the lock names PyTorch's own.
    local output="$1-win-py${2/./}.txt" wheel hash
    wheel=$(sed -n "s/^torch==\([0-9.]*\).*/torch-\1+$1-cp${2/./}-cp${2/./}-win_amd64.whl/p" "$output")
    hash=$(awk -F ' *\\| *' -v wheel="$wheel" '$2 == wheel { print $3 }' torch-windows.md)
    [ -n "$hash" ] || { echo "torch-windows.md knows no hash of $wheel" >&2; exit 1; }
    awk -v build="$1" -v hash="$hash" '
        /^[^ ]/ { torch = /^torch==/ }
        /^torch==/ { sub(/\+.*/, "", $1); print $1 "+" build " \\\n    --hash=sha256:" hash }
        !torch' "$output" > "$shared.named"
    mv "$shared.named" "$output"
}

shared=$(mktemp)
trap 'rm -f "$shared" "$shared.named"' EXIT
UPGRADE=("$@")
for system in linux win; do
    for python in 3.11 3.12 3.13; do
        # What the environments share must have one version: the test environment mixes launcher, training and
        # development packages in one process. Only PyTorch and what it pins itself differ between profiles.
        first="cpu-$system-py${python/./}.txt"
        lock cpu "$system" "$python"
        pins "$first" | grep -vE '^(torch|triton|sympy|nvidia-.*-cu12|nvidia-cusparselt.*)==' > "$shared"
        for name in cu124 cu128 launcher; do lock "$name" "$system" "$python" --constraints "$shared"; done
        pins "$first" > "$shared"
        lock harness "$system" "$python" --constraints "$shared" --overrides harness-without.in
        leave_out "harness-$system-py${python/./}.txt" "$first"
        pins "$first" "harness-$system-py${python/./}.txt" | sort -u > "$shared"
        lock rewards "$system" "$python" --constraints "$shared" --overrides rewards-without.in
        leave_out "rewards-$system-py${python/./}.txt" "$first"
        if [ "$system" = linux ]; then
            pins "$first" "launcher-$system-py${python/./}.txt" | sort -u > "$shared"
            lock dev "$system" "$python" --constraints "$shared"
        else
            for name in cu124 cu128; do name_cuda_build "$name" "$python"; done
        fi
    done
done
for name in example-model uv; do
    echo "$name.txt"
    uv pip compile --quiet --no-config --generate-hashes --no-annotate --no-header --no-deps --python-version 3.11 \
        --no-python-downloads "$name.in" --output-file "$name.txt" "${UPGRADE[@]}"
done
python3 measure_sizes.py
