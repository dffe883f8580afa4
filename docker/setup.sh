#!/usr/bin/env bash
# Set up the virtual environment with the locked versions: called by `make setup`.
# Reads VENV, TORCH_INDEX, REQUIREMENTS.
set -euo pipefail

fail() {
    printf 'setup: %s\n' "$1" >&2
    exit 1
}

# Quiet: pip's warnings about the indexes it is set up for are not ours.
install() {
    "$pip" install -qq "$@"
}

find_python() {
    local candidate
    for candidate in python3 python3.12 python3.11; do
        if "$candidate" -c 'import sys; sys.exit(sys.version_info[:2] not in ((3, 11), (3, 12)))' 2>/dev/null; then
            command -v "$candidate"
            return
        fi
    done
    fail "Python 3.11 or 3.12 is needed; python3 here is $(python3 --version 2>&1 || true). \
Install one of them (Debian, Ubuntu: apt install python3.12 python3.12-venv), then run make again."
}

install_torch() {
    # A GPU wants the default build with CUDA; everything else the small CPU build.
    if [ ! -e /dev/nvidiactl ] && [ -n "$TORCH_INDEX" ]; then
        if install --retries 0 --timeout 5 --index-url "$TORCH_INDEX" \
            --requirement "$REQUIREMENTS/torch.txt" 2>/dev/null; then
            return
        fi
        echo "setup: no torch from $TORCH_INDEX; taking the ordinary package index"
    fi
    install --requirement "$REQUIREMENTS/torch.txt"
}

python=$(find_python)
pip=$VENV/bin/pip
echo "setup: $VENV with $("$python" --version), this takes a few minutes the first time"
# --clear only where the environment was made for another Python.
if [ -x "$VENV/bin/python" ] && ! "$VENV/bin/python" -c 'import sys; sys.exit(sys.version_info[:2] not in ((3, 11), (3, 12)))'; then
    rm -rf "$VENV"
fi
[ -x "$VENV/bin/pip" ] || "$python" -m venv "$VENV" || fail "python3 -m venv failed \
(Debian, Ubuntu: apt install python3-venv)"
export PIP_DISABLE_PIP_VERSION_CHECK=1
install_torch
install --require-hashes --requirement "$REQUIREMENTS/dev.txt"
install --no-deps --editable .
echo "setup: done"
