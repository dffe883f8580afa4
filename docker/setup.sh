#!/usr/bin/env bash
# Set up a virtual environment with the locked versions. `make setup` does it in one step, the
# Dockerfiles in two, so that changed sources don't repeat the downloads:
#   docker/setup.sh [dependencies | package]
# Reads VENV, REQUIREMENTS, ROLE (see docker/requirements.py; default: dev) and TORCH_INDEX.
set -euo pipefail

ROLE=${ROLE:-dev}
# torch's own index of CPU builds: 200 MB instead of the default build's several GB of CUDA.
# Empty: the ordinary index.
TORCH_INDEX=${TORCH_INDEX-https://download.pytorch.org/whl/cpu}

fail() {
    printf 'setup: %s\n' "$1" >&2
    exit 1
}

# Quiet, as pip would warn about the indexes that this machine configures. As a module, as the path
# in the first line of the script pip is wrong after the clone was moved.
install() {
    "$VENV/bin/python" -m pip install -qq "$@"
}

is_supported() {
    "$1" -c 'import sys; sys.exit(sys.version_info[:2] not in ((3, 11), (3, 12)))' 2>/dev/null
}

find_python() {
    local candidate
    for candidate in python3 python3.12 python3.11; do
        if is_supported "$candidate"; then
            command -v "$candidate"
            return
        fi
    done
    fetch_python
}

# Newer distributions have no package of these versions. uv fetches a build of Python that needs
# nothing else, with a check of its hash, into the clone.
fetch_python() {
    export UV_PYTHON_INSTALL_DIR=$PWD/.cache/python
    local uv=.cache/uv/bin/uv
    echo "setup: fetching Python 3.12 into .cache/, as this machine has neither 3.11 nor 3.12" >&2
    [ -x "$uv" ] || {
        python=python3 VENV=.cache/uv make_environment && VENV=.cache/uv install uv==0.13.9
    } && "$uv" python install --no-progress --no-bin 3.12 && "$uv" python find --managed-python 3.12 ||
        fail "Python 3.11 or 3.12 is needed, and could not be fetched; python3 here is \
$(python3 --version 2>&1 || true). Install one of them, with its shared library, then run make again."
}

make_environment() {
    "$python" -m venv "$VENV" >/dev/null 2>&1 && return
    # Debian's Python without python3-venv can't install pip there; the pip of python3-pip can.
    if "$python" -m venv --clear --without-pip "$VENV" &&
        "$python" -m pip --python "$VENV/bin/python" install -qq pip; then
        return
    fi
    fail "no virtual environment could be made (Debian, Ubuntu: apt install python3-venv)"
}

# Request a page of the index before the download: firewalls often drop such requests silently,
# and pip would retry for minutes.
index_answers() {
    "$VENV/bin/python" - "$TORCH_INDEX" <<'END'
import sys
import urllib.request

url = sys.argv[1].rstrip("/") + "/torch/"
try:
    if url.startswith("http"):
        urllib.request.urlopen(url, timeout=5).close()
except (OSError, ValueError) as error:
    sys.exit(f"setup: {url}: {error}")
END
}

install_torch() {
    # A GPU needs the default build with CUDA; other machines need the small CPU build.
    local from=()
    if [ ! -e /dev/nvidiactl ] && [ -n "$TORCH_INDEX" ]; then
        if index_answers; then
            from=(--index-url "$TORCH_INDEX")
        else
            echo "setup: taking torch from the ordinary package index"
        fi
    fi
    install "${from[@]}" --requirement "$REQUIREMENTS/torch.txt"
}

install_dependencies() {
    # Start anew only if the environment was made for another Python version.
    if [ -x "$VENV/bin/python" ] && ! is_supported "$VENV/bin/python"; then
        rm -rf "$VENV"
    fi
    if ! "$VENV/bin/python" -m pip --version >/dev/null 2>&1; then
        python=$(find_python)
        make_environment
    fi
    echo "setup: $VENV with $("$VENV/bin/python" --version), this takes a few minutes the first time"
    [[ $ROLE == @(gateway|cameras|triton-cpu) ]] || install_torch
    install --require-hashes --requirement "$REQUIREMENTS/$ROLE.txt"
}

case $PWD in
    *[!!-~]*) fail "the path of this clone has a space or a letter beyond ASCII, '$PWD': Triton's \
stub crashes or hangs on it. Move the clone, then run make again." ;;
esac
export PIP_DISABLE_PIP_VERSION_CHECK=1
case ${1:-all} in
    dependencies) install_dependencies ;;
    package) install --no-deps --editable . ;;
    all)
        install_dependencies
        install --no-deps --editable .
        ;;
    *) fail "expected dependencies, package or no argument, got '$1'" ;;
esac
echo "setup: done"
