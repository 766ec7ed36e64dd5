# Sourced by every script: finds cargo and keeps build output and tools outside the clone, shared by
# all clones of one user. Absent: anything that installs or builds.

ROOT=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
: "${HOME:?HOME is not set}"
# rustup puts cargo here and only login shells have it in PATH; the system's tools live in sbin.
export PATH="$PATH:${CARGO_HOME:-$HOME/.cargo}/bin:/usr/local/sbin:/usr/sbin:/sbin"
CACHE=${XDG_CACHE_HOME:-$HOME/.cache}/pandofs
export CARGO_TARGET_DIR=${CARGO_TARGET_DIR:-$CACHE/target}
# pjdfstest and fsx are built into this folder.
TOOLS=${PANDOFS_TOOLS:-$CACHE/tools}
export CARGO_TERM_COLOR=${CARGO_TERM_COLOR:-never}
