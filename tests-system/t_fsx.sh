# fsx: 100,000 random operations on one file (read, write, mmap, truncate, punch, copy, ...), each checked
# against what the file must hold. Fixed seeds, so that a failure repeats.
. "$(dirname "$0")/lib.sh"
require fsx
TEST=fsx

up "$WORK/data" "$WORK/mnt"
cd "$WORK" || exit 1
for seed in ${SEEDS:-1 2}; do
    check "${OPERATIONS:=50000} operations, seed $seed" "$TOOLS/bin/fsx" -q -S "$seed" -N "$OPERATIONS" -f "$HERE/fsx.toml" -P "$WORK" "$WORK/mnt/fsx.$seed"
done
down "$WORK/mnt"
check "fsck afterwards" clean "$WORK/data"
