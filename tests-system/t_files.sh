# Files that one mount works on alone: it writes, cuts and dates them without waiting for the server, and whoever looks sees all of it;
# what was written is there after a crash of the server, and after the mount's.
. "$(dirname "$0")/lib.sh"
require python3
TEST=files
cd "$WORK" || exit 1

"$PANDO" format ./data >/dev/null || die format
serve ./data
server=$SERVER
"$PANDO" mount unix:./data/pando.sock ./a >/dev/null || die "mount a"
"$PANDO" mount unix:./data/pando.sock ./b >/dev/null || die "mount b"

cat >rounds.py <<'P'
import os, random, sys
rng = random.Random(11)
BYTES = bytes(range(256)) * 16
for n in range(int(sys.argv[1])):
    name = f"f{n}"
    with open(f"a/{name}", "wb") as f:
        f.write(b"before")
    os.sync()
    f = os.open(f"a/{name}", os.O_RDWR)
    model = bytearray(b"before")
    # The first goes to the server, which delegates the file with the answer.
    for k in range(rng.randrange(3, 40)):
        at, size = rng.randrange(0, 9000), rng.randrange(1, 4096)
        what = rng.randrange(12)
        if what == 0:
            size = rng.randrange(0, 12000)
            os.ftruncate(f, size)
            model = model[:size] + bytes(max(0, size - len(model)))
        elif what == 1:
            os.utime(f, (1_000_000 + k, 2_000_000 + k))
        elif what == 2:
            assert os.pread(f, 20000, 0) == bytes(model), "what it wrote itself"
        else:
            data = BYTES[:size]
            os.pwrite(f, data, at)
            model.extend(bytes(max(0, at + size - len(model))))
            model[at:at + size] = data
        assert os.fstat(f).st_size == len(model), "size at home"
    there = os.stat(f"b/{name}")
    here = os.fstat(f)
    assert (there.st_size, there.st_mtime_ns) == (len(model), here.st_mtime_ns), (there, here, len(model))
    with open(f"b/{name}", "rb") as g:
        assert g.read() == bytes(model), "content"
    with open(f"b/{name}", "ab") as g:
        g.write(b"theirs")
    assert os.fstat(f).st_size == len(model) + 6, "what the other appended"
    os.pwrite(f, b"mine", 0)
    with open(f"b/{name}", "rb") as g:
        assert g.read(4) == b"mine", "both have it open"
    os.close(f)
    if n % 2:
        os.unlink(f"b/{name}")
        assert not os.path.exists(f"a/{name}")
P
check "40 rounds of one writing and the other looking" timeout 120 python3 rounds.py 40

# Two write one file by turns, and at once.
cat >both.py <<'P'
import os, sys
which, n = sys.argv[1], int(sys.argv[2])
f = os.open(f"{which}/shared", os.O_WRONLY | os.O_APPEND)
for k in range(n):
    os.write(f, f"{which}{k:05}\n".encode())
os.fsync(f)
P
: >a/shared
(timeout 120 python3 both.py a 1500) &
one=$!
check "two append to one file" timeout 120 python3 both.py b 1500
wait $one || fail "the other one" "$?"
same "each line once" 3000 "$(sort -u b/shared | wc -l)"
same "and nothing else" "$((3000 * 7))" "$(stat -c %s a/shared)"

# The server dies while one mount has written without waiting: the mount writes it again, fsync says ok, and everything is there.
cat >crash.py <<'P'
import os
f = os.open("a/kept", os.O_RDWR)
for k in range(2000):
    os.pwrite(f, b"%04d" % k, 4 * k)
    if k == 1000:
        os.fsync(f)
        print("synced", flush=True)
os.fsync(f)
P
head -c 8000 /dev/zero >a/kept
sync a/kept
(timeout 100 python3 crash.py >crash.out) &
writer=$!
until grep -q synced crash.out 2>/dev/null || ! kill -0 $writer 2>/dev/null; do sleep 0.01; done
kill9 $server
serve ./data
wait $writer || fail "the writer goes on over a crash" "$?"
same "what fsync said is there" "8000 2000 0" "$(python3 - <<'P'
d = open("b/kept", "rb").read()
at = [d[4 * k:4 * k + 4] for k in range(2000)]
right = next((k for k in range(2000) if at[k] != b"%04d" % k), 2000)
print(len(d), right, sum(found not in (b"%04d" % k, bytes(4)) for k, found in enumerate(at)))
P
)"
down ./a
down ./b
kill "$SERVER"
for n in $(seq 600); do kill -0 "$SERVER" 2>/dev/null || break; sleep 0.05; done
check "fsck" clean ./data
finish
