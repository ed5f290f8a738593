#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Installs the official MCP conformance suite, SDK client and Inspector into the folder $1, as package-lock.json pins them,
# unless they are there already. Needs npm (Node.js 20 or later); the folder gets a Node.js of its own where the machine's is
# older than they want. $1/node is the interpreter to use.
set -eu
dir=$1
here=$(cd "$(dirname "$0")" && pwd)

if cmp -s "$here/package-lock.json" "$dir/made-from" && "$dir/node" --version >/dev/null 2>&1; then
	exit 0
fi
if ! command -v npm >/dev/null; then
	if command -v apt-get >/dev/null && [ "$(id -u)" = 0 ]; then
		apt-get update -qq && apt-get install -y -qq nodejs npm >/dev/null
	else
		echo 'the official MCP clients need npm and Node.js 20 or later (Debian: apt-get install nodejs npm)' >&2
		exit 1
	fi
fi
echo "conformance: installing the official MCP suite and clients into $dir" >&2
rm -rf "$dir"
mkdir -p "$dir"
cp "$here/package.json" "$here/package-lock.json" "$dir/"
# Not "npm ci": it wants every system's optional packages in the lock file, and one of them cannot be had.
(cd "$dir" && npm install --no-save --ignore-scripts --no-audit --no-fund --loglevel=error) >&2 || {
	echo 'could not install tools/conformance/package-lock.json: a package registry (or an npm cache with these versions) is needed once' >&2
	exit 1
}
node=
for n in "$dir"/node_modules/node-linux-*/bin/node $(command -v node); do
	if [ -x "$n" ] && "$n" -e 'const [a, b] = process.versions.node.split(".").map(Number); process.exit(a > 22 || a === 22 && b >= 19 ? 0 : 1)' 2>/dev/null; then
		node=$n
		break
	fi
done
[ -n "$node" ] || { echo 'the official MCP clients need Node.js 22.19 or later on this system' >&2; exit 1; }
ln -sf "$node" "$dir/node"
cp "$here/package-lock.json" "$dir/made-from"
