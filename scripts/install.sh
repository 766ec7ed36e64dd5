#!/usr/bin/env bash
# Builds the binary for use and installs it with its mount helper, man pages and completions. PREFIX (/usr/local) and DESTDIR as
# everywhere. Absent: starting anything, configuration.

set -eu
. "$(dirname "${BASH_SOURCE[0]}")/env.sh"
cd "$ROOT"
PREFIX=${PREFIX:-/usr/local}
to=${DESTDIR:-}$PREFIX

cargo build --profile dist --locked -p cli
pando=$CARGO_TARGET_DIR/dist/pando
install -D -m 755 "$pando" "$to/bin/pando"
# mount(8) looks for helpers of fstab's `fuse.pando` here only.
mkdir -p "${DESTDIR:-}/sbin"
ln -sf "$PREFIX/bin/pando" "${DESTDIR:-}/sbin/mount.fuse.pando"
mkdir -p "$to/share/man/man1" "$to/share/man/man8" "$to/share/bash-completion/completions"
"$pando" man "$to/share/man/man1" >/dev/null
# man(1) looks for a page only in the folder of its section.
mv -f "$to"/share/man/man1/*.8 "$to/share/man/man8/"
"$pando" completion bash >"$to/share/bash-completion/completions/pando"
echo "installed: $to/bin/pando, ${DESTDIR:-}/sbin/mount.fuse.pando, man pages, completion"
