#!/usr/bin/env bash
# The first README command: prerequisites, build, then a mount that is worked on, killed and verified. Leaves
# the mount up; a second call reuses it.
#
#   PANDO_DATA (./pando-data) and PANDO_MNT (./mnt) say where.
set -u
. "$(dirname "$0")/env.sh"
cd "$ROOT" || exit 1
DATA=${PANDO_DATA:-./pando-data} MNT=${PANDO_MNT:-./mnt}

step() { printf '[%s/5] %-15s %-42s ' "$1" "$2" "$3"; }
broken() {
    echo "failed"
    sed 's/^/      /' <<<"$1" >&2
    exit 1
}

text=$(scripts/install-prerequisites.sh --quiet 2>&1)
code=$?
rust=$(rustc --version 2>/dev/null | cut -d' ' -f1,2)
step 1 prerequisites "${rust:-no rustc}, fusermount3, /dev/fuse"
[ $code = 0 ] || broken "$text"
installed=$(sed -n 's/^installed: \(.*\)/ (installed: \1)/p' <<<"$text")
echo "ok$installed"

log=$(mktemp)
step 2 build "pando $(sed -n 's/^version = "\(.*\)"/\1/p' Cargo.toml | head -n 1)"
start=$SECONDS
cargo build --release --locked -p cli --bin pando >"$log" 2>&1 || broken "$(tail -n 40 "$log")"
rm -f "$log"
seconds=$((SECONDS - start))
if [ $seconds -ge 60 ]; then echo "$((seconds / 60)) min $((seconds % 60)) s"; else echo "$seconds s"; fi

exec "$CARGO_TARGET_DIR/release/pando" demo "$DATA" "$MNT"
