#!/usr/bin/env bash
# create_venv.sh DIR: a virtual environment from the first suitable Python (3.11 or newer, with venv); PYTHON overrides.
set -euo pipefail
suitable='import sys, venv, ensurepip; sys.exit(sys.version_info < (3, 11))'

create() {
  local python
  for python in ${PYTHON:-python3.11 python3.12 python3.13 python3}; do
    # asked, not looked up: a version manager's shim may exist for a version that is not there
    if "$python" -c "$suitable" 2>/dev/null; then
      echo "Creating $1 with $("$python" --version)"
      "$python" -m venv "$1"
      return
    fi
  done
  return 1
}

create "$1" && exit
# Debian keeps venv in a package of its own
if [ -z "${PYTHON:-}" ] && [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
  echo 'apt-get install python3-venv'
  export DEBIAN_FRONTEND=noninteractive
  apt-get -qq update && apt-get -qq --no-install-recommends install python3-venv >/dev/null && create "$1" && exit
fi
echo 'No suitable Python: 3.11 or newer with venv is needed (apt-get install python3-venv, or PYTHON=/path/to/python3.x make ...).' >&2
exit 1
