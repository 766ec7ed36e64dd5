#!/usr/bin/env bash
# Installs what building and mounting need (--tests: what the tests need besides). Says what it
# installed; what it cannot install it names, with the command that would, and exits 1.
#
#   scripts/install-prerequisites.sh [--tests] [--quiet]
set -u
. "$(dirname "$0")/env.sh"

tests=0 quiet=0
for arg in "$@"; do
    case $arg in
        --tests) tests=1 ;;
        --quiet) quiet=1 ;;
        *) echo "usage: $0 [--tests] [--quiet]" >&2; exit 2 ;;
    esac
done

installed=() missing=() packages=()
say() { [ "$quiet" = 1 ] || echo "$@"; }

# need PROGRAM PACKAGE: the package is wanted when the program is not there.
need() { command -v "$1" >/dev/null 2>&1 || packages+=("$2"); }
# need_file PACKAGE PATH...: wanted when none of the files is there.
need_file() {
    local package=$1 path
    shift
    for path in "$@"; do [ -e "$path" ] && return; done
    packages+=("$package")
}

need make make
need gcc gcc
need pkg-config pkg-config
need fusermount3 fuse3
if [ "$tests" = 1 ]; then
    need_file libacl1-dev /usr/include/sys/acl.h
    need setfacl acl
    need setfattr attr
    need git git
    need python3 python3-minimal
    need setpriv util-linux
    need sqlite3 sqlite3
    need rsync rsync
    need xz xz-utils
    need mkfs.ext4 e2fsprogs
    need_file postgresql /usr/lib/postgresql/*/bin/pgbench
fi

if [ ${#packages[@]} -gt 0 ]; then
    if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null 2>&1; then
        say "installing: ${packages[*]}"
        if [[ " ${packages[*]} " == *" postgresql "* ]]; then
            # The tests make databases of their own; none is to be started beside them.
            mkdir -p /etc/postgresql-common/createcluster.d
            echo 'create_main_cluster = false' >/etc/postgresql-common/createcluster.d/no-main-cluster.conf
        fi
        log=$(mktemp)
        if { apt-get update && DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends \
            "${packages[@]}"; } >"$log" 2>&1; then
            installed+=("${packages[@]}")
        else
            tail -n 20 "$log" >&2
            missing+=("packages: apt-get install ${packages[*]}")
        fi
        rm -f "$log"
    else
        missing+=("packages (not root, or no apt-get): sudo apt-get install ${packages[*]}")
    fi
fi

# The compiler is not ours to install: its owner chose how.
wanted=$(sed -n 's/^rust-version = "\(.*\)"/\1/p' "$ROOT/Cargo.toml")
if command -v cargo >/dev/null 2>&1; then
    found=$(rustc --version 2>/dev/null | cut -d' ' -f2)
    if [ "$(printf '%s\n%s\n' "$wanted" "${found%%-*}" | sort -V | head -n 1)" != "$wanted" ]; then
        missing+=("Rust $wanted or later (found ${found:-none}): rustup update stable")
    fi
    for component in rustfmt clippy-driver; do
        [ "$tests" = 0 ] || command -v "$component" >/dev/null 2>&1 ||
            missing+=("$component: rustup component add rustfmt clippy")
    done
else
    missing+=("Rust $wanted or later: https://rustup.rs")
fi

# tool NAME VERSION: a test program from the crate registry, built once per version.
tool() {
    "$TOOLS/bin/$1" --version 2>/dev/null | grep -qF " $2" && return
    say "building $1 $2 into $TOOLS (once)"
    mkdir -p "$TOOLS"
    if CARGO_TARGET_DIR=$TOOLS/build cargo install --locked --quiet --force --root "$TOOLS" \
        "$1" --version "$2"; then
        installed+=("$1 $2")
    else
        missing+=("$1 $2: cargo install --locked --root $TOOLS $1 --version $2")
    fi
}
if [ "$tests" = 1 ] && command -v cargo >/dev/null 2>&1; then
    tool pjdfstest 0.2.2
    tool fsx 0.3.2
fi

if [ "$(id -u)" = 0 ] && [ ! -e /dev/fuse ]; then
    modprobe fuse 2>/dev/null
fi
if [ ! -e /dev/fuse ]; then
    missing+=("/dev/fuse: modprobe fuse; in a container: --device /dev/fuse --cap-add SYS_ADMIN")
fi

if [ ${#installed[@]} -gt 0 ]; then
    printf 'installed: %s\n' "$(IFS=,; echo "${installed[*]}" | sed 's/,/, /g')"
fi
if [ ${#missing[@]} -gt 0 ]; then
    printf 'missing %s\n' "${missing[@]}" >&2
    exit 1
fi
