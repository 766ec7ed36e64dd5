# Data folders of every release open, hold what they held, take new work, and are in order afterwards.
. "$(dirname "$0")/lib.sh"
. "$(dirname "$0")/fixture.sh"
require xz getfacl getfattr
TEST=fixture
ls "$HERE"/fixtures/*/killed.tar.xz >/dev/null 2>&1 || die "no fixtures: tests-system/make-fixture.sh VERSION makes them, once per release"
for place in "$HERE"/fixtures/*/; do
    version=$(basename "$place")
    for kind in stopped killed; do
        rm -rf "${WORK:?}/$kind"
        check "$version $kind: unpack" tar -C "$WORK" -S -xJf "$place/$kind.tar.xz"
        [ $kind = killed ] || check "$version $kind: fsck" clean "$WORK/$kind"
        up "$WORK/$kind" "$WORK/mnt"
        facts "$WORK/mnt" >"$WORK/facts"
        xz -dc "$place/$kind.facts.xz" >"$WORK/wanted"
        check "$version $kind: everything is there" diff -a "$WORK/wanted" "$WORK/facts"
        check "$version $kind: new work" bash -c 'cd "$1" && mkdir new && cp -a many new && rm -r many && mv new/many . && seq 9 >small' - "$WORK/mnt"
        down "$WORK/mnt"
        check "$version $kind: fsck afterwards" clean "$WORK/$kind"
    done
done
