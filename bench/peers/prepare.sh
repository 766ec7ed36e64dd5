#!/usr/bin/env bash
# What `make peers` does: builds ours and installs the peers that run.sh compares with. CephFS and MooseFS come from the
# distribution's packages, passthrough_ll is compiled from the example that its libfuse ships, JuiceFS is built from its published source into ~/.cache/pandofs/peers. What is there is
# left alone; what cannot be had is named, with the reason, and the exit is 1.
#
#   bench/peers/prepare.sh [pando|null|tmpfs|passthrough|ceph|juicefs|moosefs|pando2|ceph2]...       default: all
set -eu
. "$(dirname "$0")/../../scripts/env.sh"
. "$ROOT/bench/peers/systems.sh"

wanted=("${@:-${SYSTEMS[@]}}")
for name in "${wanted[@]}"; do
    [[ " ${SYSTEMS[*]} " == *" $name "* ]] || { echo "usage: $0 [${SYSTEMS[*]}]..." >&2; exit 2; }
done
missing=0
mkdir -p "$PEERS"
LOG=$PEERS/prepare.log
: >"$LOG"

# quietly COMMAND...: its output is shown only when it fails.
quietly() {
    echo "+ $*" >>"$LOG"
    nice -n 19 "$@" >>"$LOG" 2>&1 && return
    tail -n 20 "$LOG" >&2
    echo "(all of it: $LOG)" >&2
    return 1
}

guarded=''
unguard() { [ -z "$guarded" ] || rm -f "$guarded"; }
trap unguard EXIT

# packages NAME PACKAGE...: installs them; their services must not start, and this is how Debian is told so.
packages() {
    local name=$1 package
    shift
    if [ "$(id -u)" != 0 ] || ! command -v apt-get >/dev/null 2>&1; then
        echo "$name: not root, or no apt-get: sudo apt-get install --no-install-recommends $*" >&2
        return 1
    fi
    quietly apt-get update || return 1
    for package in "$@"; do
        apt-cache policy "$package" | grep -q '^  Candidate: [^(]' && continue
        echo "$name: skipped: no package $package in this system's apt sources" >&2
        return 1
    done
    echo "$name: installing $*"
    if [ ! -e /usr/sbin/policy-rc.d ]; then
        guarded=/usr/sbin/policy-rc.d
        printf '#!/bin/sh\nexit 101\n' >"$guarded"
        chmod 755 "$guarded"
    fi
    quietly env DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends "$@"
}

install_pando() { quietly cargo build --manifest-path "$ROOT/Cargo.toml" --release --locked -p cli --bin pando; }
install_pando2() { install_pando; }
install_null() { quietly cargo build --manifest-path "$ROOT/Cargo.toml" --release --locked -p fuse --example null; }
install_passthrough() {
    local example=/usr/share/doc/libfuse3-dev/examples flags
    packages passthrough "${PASSTHROUGH_PACKAGES[@]}" || return 1
    if [ ! -e "$example/passthrough_ll.c" ]; then
        echo "passthrough: $example/passthrough_ll.c is missing: this system leaves documentation out of packages" >&2
        return 1
    fi
    read -ra flags < <(pkg-config --cflags --libs fuse3)
    quietly gcc -O2 -o "$PASSTHROUGH" "$example/passthrough_ll.c" "${flags[@]}"
}
install_ceph() { packages ceph "${CEPH_PACKAGES[@]}"; }
install_ceph2() { install_ceph; }
install_moosefs() { packages moosefs "${MOOSEFS_PACKAGES[@]}"; }

# Object stores and metadata engines nobody asks for here: leaving them out saves most of the build.
JUICEFS_TAGS=nogateway,nowebdav,nocos,nobos,nohdfs,noibmcos,noobs,nooss,noqingstor,nosftp,noswift,noazure,nogs
JUICEFS_TAGS+=,noufile,nob2,nonfs,nodragonfly,nosqlite,nomysql,nopg,notikv,noetcd

# `go install MODULE@VERSION` refuses a module with replacements, so its source is taken and built as its own.
install_juicefs() {
    local go=$PEERS/go found source
    found=$(go env GOVERSION 2>/dev/null | sed 's/^go//') || true
    if [ -z "$found" ] || [ "$(printf '%s\n' 1.21 "$found" | sort -V | head -n 1)" != 1.21 ]; then
        echo "juicefs: needs Go 1.21 or later to build (found ${found:-none}): https://go.dev/dl" >&2
        return 1
    fi
    echo "juicefs: building $JUICEFS_VERSION with Go $found (several minutes)"
    export GOPATH=$go GOMODCACHE=$go/mod GOCACHE=$go/cache GOFLAGS=-modcacherw GOTOOLCHAIN=local
    mkdir -p "$go"
    quietly go mod download "github.com/juicedata/juicefs@v$JUICEFS_VERSION" || return 1
    source=$go/source
    rm -rf "$source"
    cp -r "$GOMODCACHE/github.com/juicedata/juicefs@v$JUICEFS_VERSION" "$source"
    chmod -R u+w "$source"
    mkdir -p "$(dirname "$JUICEFS")"
    quietly env -C "$source" go build -tags "$JUICEFS_TAGS" -ldflags '-s -w' -o "$JUICEFS.new" . || return 1
    mv "$JUICEFS.new" "$JUICEFS"
    rm -rf "$go"
}

# prepare NAME: cargo itself knows whether ours are up to date.
prepare() {
    local lack
    if [ "$1" = pando ] || [ "$1" = pando2 ] || [ "$1" = null ]; then
        echo "$1: building"
        "install_$1" || return 1
    elif [ -n "$("$1_missing")" ]; then
        "install_$1" || return 1
    fi
    lack=$("$1_missing")
    if [ -n "$lack" ]; then
        echo "$1: installed, but $lack" >&2
        return 1
    fi
    echo "$1: ready: $("$1_version")"
}

for program in ip:iproute2 unshare:util-linux losetup:mount mkfs.ext4:e2fsprogs python3:python3; do
    command -v "${program%:*}" >/dev/null 2>&1 || packages "${program%:*}" "${program#*:}" || missing=1
done
for name in "${wanted[@]}"; do
    prepare "$name" || missing=1
done
if [ $missing = 1 ]; then
    echo "not everything is there; bench/peers/run.sh compares with what is" >&2
    exit 1
fi
