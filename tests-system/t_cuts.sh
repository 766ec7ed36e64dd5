# The embedded store on a lossy disk: a server under load loses power, again and again (200 times, PANDOFS_CUTS); the disk drops,
# tears and reorders what was not synced. Everything acknowledged as durable must be there, and fsck clean, each time.
# Half of the cuts fall between the sync of a new file and that of its name, and the server lives on for a while after each.
. "$(dirname "$0")/lib.sh"
require fusermount3
TEST=cuts
bin=$(dirname "$PANDO")
[ -x "$bin/cuts" ] || die "$bin/cuts is missing: cargo build --release -p lossydisk"

# The journal is small so that checkpoints happen within a few rounds.
echo 'journal_size = "16M"' >"$WORK/pando.toml"
if TMPDIR=$WORK RUST_BACKTRACE=0 "$bin/cuts" "$PANDO" "${PANDOFS_CUTS:-200}" 1 "$WORK/pando.toml" >"$WORK/cuts" 2>&1; then
    pass "$(tail -n 1 "$WORK/cuts")"
else
    fail "power cuts" "$(head -n 40 "$WORK/cuts" | cut -c 1-300)"
fi
