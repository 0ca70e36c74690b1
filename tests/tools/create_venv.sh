#!/usr/bin/env bash
# create_venv.sh DIR: a virtual environment from the first suitable Python (3.11 or newer, with venv); PYTHON overrides.
set -euo pipefail
suitable='import sys, venv, ensurepip; sys.exit(sys.version_info < (3, 11))'
for python in ${PYTHON:-python3.11 python3.12 python3.13 python3}; do
  # asked, not looked up: a version manager's shim may exist for a version that is not there
  if "$python" -c "$suitable" 2>/dev/null; then
    echo "Creating $1 with $("$python" --version)"
    exec "$python" -m venv "$1"
  fi
done
echo "No suitable Python: 3.11 or newer with venv is needed (apt-get install python3-venv, or PYTHON=/path/to/python3.x make ...)." >&2
exit 1
