# Data folders of every release open, hold what they held, take new work, and are in order afterwards.
. "$(dirname "$0")/lib.sh"
. "$HERE/fixture.sh"
. "$HERE/ranks.sh"
require xz getfacl getfattr
TEST=fixture
ls "$HERE"/fixtures/*/killed.tar.xz >/dev/null 2>&1 || die "no fixtures: tests-system/make-fixture.sh VERSION makes them, once per release"
for place in "$HERE"/fixtures/*/; do
    version=$(basename "$place")
    for kind in stopped killed ranks_stopped ranks_killed; do
        # Releases before 0.3 had one rank.
        [[ $kind != ranks_* || ! $version =~ ^v0\.[12]\. ]] || continue
        rm -rf "${WORK:?}/data"
        check "$version $kind: unpack" tar -C "$WORK" -S -xJf "$place/$kind.tar.xz"
        mv "$WORK/$kind" "$WORK/data"
        # A transaction of several ranks that a kill cut in two is for a start to end.
        [[ $kind = *killed ]] || check "$version $kind: fsck" clean "$WORK/data"
        VIA=
        if [[ $kind = ranks_* ]]; then
            VIA=socket
            serve "$WORK/data" --ranks 4
            check "$version $kind: all ranks serve" within serve_all 3
            "$PANDO" -q mount "unix:$WORK/data/pando.sock" "$WORK/mnt" 2>"$WORK/err" || die "mount: $(cat "$WORK/err")"
        else
            up "$WORK/data" "$WORK/mnt"
        fi
        facts "$WORK/mnt" >"$WORK/facts"
        xz -dc "$place/$kind.facts.xz" >"$WORK/wanted"
        check "$version $kind: everything is there" diff -a "$WORK/wanted" "$WORK/facts"
        check "$version $kind: new work" bash -c 'cd "$1" && mkdir new && cp -a many new && rm -r many && mv new/many . && seq 9 >small' - "$WORK/mnt"
        down "$WORK/mnt"
        check "$version $kind: fsck afterwards" clean "$WORK/data"
    done
done
