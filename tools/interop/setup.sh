#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Makes the Python environment of the interop test in the folder $1, unless it is there
# already and made from the same requirements. Needs Python 3.10 or later with venv.
set -eu
venv=$1
here=$(cd "$(dirname "$0")" && pwd)
python=${PYTHON:-python3}

usable() { "$python" -c 'import sys, venv, ensurepip; sys.exit(sys.version_info < (3, 10))' 2>/dev/null; }

if cmp -s "$here/requirements.txt" "$venv/made-from" && "$venv/bin/python" -c 'import anp' 2>/dev/null; then
	exit 0
fi
if ! usable; then
	if command -v apt-get >/dev/null && [ "$(id -u)" = 0 ]; then
		apt-get update -qq && apt-get install -y -qq python3 python3-venv >/dev/null
	fi
	usable || { echo 'make test-interop needs Python 3.10 or later with venv and pip (Debian: apt-get install python3 python3-venv); PYTHON=… names another' >&2; exit 1; }
fi
echo "interop: installing the ANP Python SDK into $venv" >&2
rm -rf "$venv"
"$python" -m venv "$venv"
"$venv/bin/python" -m pip install --quiet --disable-pip-version-check --no-input --only-binary :all: -r "$here/requirements.txt" || {
	echo 'make test-interop could not install tools/interop/requirements.txt: a package index (or a pip cache with these versions) is needed once' >&2
	exit 1
}
cp "$here/requirements.txt" "$venv/made-from"
