# Capabilities on real mounts: what one mount's kernel keeps goes when another changes it, no two wait for each other, and who is
# killed or stopped while it keeps something delays the others for a while and no longer.
. "$(dirname "$0")/lib.sh"
require python3
TEST=caps
cd "$WORK" || exit 1

"$PANDO" format ./data >/dev/null || die format
serve ./data
server=$SERVER
"$PANDO" mount unix:./data/pando.sock ./a >/dev/null || die "mount a"
b=$("$PANDO" mount --format json unix:./data/pando.sock ./b | sed -n 's/.*"pid":\([0-9]*\).*/\1/p')
[ -n "$b" ] || die "mount b"

# Both keep everything, one changes, the other looks: name, mode, size, content, links, xattrs; by turns.
cat >rounds.py <<'P'
import os, random, sys
rng = random.Random(7)
for n in range(int(sys.argv[1])):
    here, there = ("a", "b") if rng.random() < 0.5 else ("b", "a")
    x, y, z = f"x{n % 7}", f"y{n % 7}", f"z{n % 7}"
    with open(f"{here}/{x}", "w") as f:
        f.write("one")
    assert open(f"{there}/{x}").read() == "one", "content"
    assert os.stat(f"{there}/{x}").st_size == 3
    kept = os.open(f"{there}/{x}", os.O_RDONLY)
    assert os.pread(kept, 99, 0) == b"one"
    with open(f"{here}/{x}", "r+") as f:
        f.write("two!")
    assert os.pread(kept, 99, 0) == b"two!", "content through an open handle"
    assert os.fstat(kept).st_size == 4 and os.stat(f"{there}/{x}").st_size == 4, "size"
    os.chmod(f"{here}/{x}", 0o600 + n % 8)
    assert os.stat(f"{there}/{x}").st_mode & 0o777 == 0o600 + n % 8, "mode"
    os.setxattr(f"{here}/{x}", "user.n", b"%d" % n)
    assert os.getxattr(f"{there}/{x}", "user.n") == b"%d" % n, "xattr"
    os.link(f"{here}/{x}", f"{here}/{z}")
    assert os.stat(f"{there}/{x}").st_nlink == 2, "nlink"
    assert os.stat(f"{here}/{x}").st_nlink == 2, "nlink at home"
    os.unlink(f"{there}/{x}")
    assert not os.path.exists(f"{here}/{x}"), "the first name of two"
    assert open(f"{here}/{z}").read() == "two!"
    os.rename(f"{here}/{z}", f"{here}/{y}")
    assert not os.path.exists(f"{there}/{z}") and open(f"{there}/{y}").read() == "two!", "rename"
    with open(f"{there}/new{n % 7}", "w") as f:
        f.write("three")
    os.rename(f"{there}/new{n % 7}", f"{there}/{y}")
    assert open(f"{here}/{y}").read() == "three", "replaced"
    assert os.fstat(kept).st_nlink == 0 and os.pread(kept, 99, 0) == b"two!", "what is open stays"
    os.close(kept)
    os.mkdir(f"{here}/d{n % 7}")
    for _ in range(2):
        assert os.listdir(f"{there}/d{n % 7}") == [] and os.listdir(f"{here}/d{n % 7}") == []
    open(f"{there}/d{n % 7}/in", "w").close()
    assert os.listdir(f"{here}/d{n % 7}") == ["in"], "listing"
    os.rename(f"{here}/d{n % 7}", f"{here}/e{n % 7}")
    assert os.path.exists(f"{there}/e{n % 7}/in") and not os.path.exists(f"{there}/d{n % 7}"), "directory renamed"
    os.unlink(f"{there}/e{n % 7}/in")
    os.rmdir(f"{here}/e{n % 7}")
    assert not os.path.exists(f"{there}/e{n % 7}"), "directory gone"
    os.unlink(f"{here}/{y}")
    assert not os.path.exists(f"{there}/{y}"), "unlink"
print("all seen")
P
same "200 rounds: each change is seen by the other at once" "all seen" "$(timeout 120 python3 rounds.py 200 2>&1 | tail -n 1)"

# Names that are absent: who searches the same folders again asks once, and sees at once what another makes.
lookups() { "$PANDO" perf dump --cluster ./data --format json | grep -o '"req_lookup_latency":{"avgcount":[0-9]*' | grep -o '[0-9]*$'; }
mkdir -p a/include
cat >search.py <<'P'
import os
for n in range(2000):
    assert not os.path.exists(f"a/include/absent{n % 20}.h")
open("b/include/absent7.h", "w").close()
assert os.path.exists("a/include/absent7.h"), "made by another"
os.rename("b/include/absent7.h", "b/include/absent8.h")
assert os.path.exists("a/include/absent8.h") and not os.path.exists("a/include/absent7.h"), "renamed by another"
P
before=$(lookups)
same "what another makes is not absent any more" "" "$(timeout 60 python3 search.py 2>&1 | tail -n 1)"
check "searching 2,000 times for 20 absent names asks for few of them" [ $(($(lookups) - before)) -lt 500 ]

# Two writers of one page, and a reader of it.
cat >page.py <<'P'
import os, sys
name, mine, rounds = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
fd = os.open(name, os.O_RDWR | os.O_CREAT)
for n in range(rounds):
    os.pwrite(fd, bytes([48 + n % 10]) * 8, mine * 8)
    seen = os.pread(fd, 8, mine * 8)
    assert seen == bytes([48 + n % 10]) * 8, (n, seen)
    os.pread(fd, 4096, 0)
P
(timeout 60 python3 page.py a/page 0 300 >page.a 2>&1) &
timeout 60 python3 page.py b/page 1 300 >page.b 2>&1
wait $!
same "two hosts write one page: each reads what it wrote" "" "$(cat page.a page.b)"
same "and both see all of it" 9999999999999999-9999999999999999 "$(head -c 16 a/page)-$(head -c 16 b/page)"

# Two hosts append to one file through handles that read as well.
(timeout 60 python3 -c 'import os; f = os.open("a/log", os.O_RDWR | os.O_APPEND | os.O_CREAT)
for n in range(300): os.write(f, b"a%07d" % n)') &
timeout 60 python3 -c 'import os; f = os.open("b/log", os.O_RDWR | os.O_APPEND | os.O_CREAT)
for n in range(300): os.write(f, b"b%07d" % n)'
wait $!
same "appends of two hosts do not overwrite" "300 300" "$(fold -w 8 a/log | grep -c '^a0') $(fold -w 8 b/log | grep -c '^b0')"

# rm -rf of one tree from both: neither waits for the other's requests.
mkdir -p a/tree && for d in $(seq 20); do mkdir a/tree/$d && (cd a/tree/$d && touch $(seq 40)); done
ls -lR b/tree >/dev/null
(timeout 60 rm -rf a/tree 2>rm.a; echo $? >rm.code) &
timeout 60 rm -rf b/tree 2>rm.b
code=$?
wait $!
check "rm -rf of one tree from two mounts ends" test "$code" != 124 -a "$(cat rm.code)" != 124
rm -rf a/tree
check "and the tree is gone" bash -c '! [ -e a/tree ] && ! [ -e b/tree ]'
check "nothing but names that were gone" bash -c '! grep -v "No such file" rm.a rm.b | grep -q .'
# Who stands in a directory, or has it open, that the other removes: it is empty and has no links, and nothing is found in it.
mkdir a/gone && stat b/gone >/dev/null
same "a directory that the other mount removed under us" "0 2 2 2" "$(timeout 60 python3 -c 'import os
fd = os.open("a/gone", os.O_DIRECTORY); os.rmdir("b/gone"); found = [os.fstat(fd).st_nlink]
for use in (lambda: os.open("x", os.O_CREAT | os.O_WRONLY, dir_fd=fd), lambda: os.stat("x", dir_fd=fd), lambda: os.stat("a/gone")):
    try: found.append(use())
    except OSError as error: found.append(error.errno)
print(*found)' 2>&1)"
same "each is shown with what it keeps" 2 "$("$PANDO" client ls --cluster ./data --json | grep -o '"num_caps":[1-9]' | wc -l)"

# One that is killed, and one that is stopped, while they keep what others change.
seconds() { local begin=$SECONDS; timeout 60 "$@" >/dev/null 2>&1 || echo "failed: "; echo $((SECONDS - begin)); }
echo kept >a/kept && stat b/kept b >/dev/null && cat b/kept >/dev/null
kill9 "$b"
took=$(seconds bash -c 'echo changed >a/kept && chmod 600 a/kept')
check "who was killed delays others for 3 s at most ($took)" test "$took" -le 4
umount -l ./b 2>/dev/null
b=$("$PANDO" mount --format json unix:./data/pando.sock ./b | sed -n 's/.*"pid":\([0-9]*\).*/\1/p')
stat b/kept b >/dev/null
kill -STOP "$b"
took=$(seconds chmod 640 a/kept)
check "who is stopped delays others for its lease ($took)" test "$took" -ge 5 -a "$took" -le 15
kill -CONT "$b"
check "and is refused afterwards" bash -c 'timeout 30 stat b/kept; c=$?; [ $c != 0 ] && [ $c != 124 ]'
umount -l ./b 2>/dev/null

# The server dies: who comes back goes on, and nobody changes what the other may still keep.
"$PANDO" mount unix:./data/pando.sock ./b >/dev/null || die "mount b"
stat b/kept b >/dev/null
kill9 "$server"
serve ./data
server=$SERVER
took=$(seconds chmod 644 a/kept)
check "after a restart a change waits for what others keep, not for a lease ($took)" test "$took" -le 5
same "and is seen" 644 "$(stat -c %a b/kept)"
same "20 more rounds" "all seen" "$(timeout 60 python3 rounds.py 20 2>&1 | tail -n 1)"
down ./a
down ./b
kill -TERM "$server"
wait "$server"
check "fsck" clean ./data

# The same where one of the two mounts is the server's own.
up ./data ./a
check "a second mount of it" "$PANDO" mount ./data ./b
same "200 rounds with the server's own mount" "all seen" "$(timeout 120 python3 rounds.py 200 2>&1 | tail -n 1)"
(timeout 60 python3 page.py a/page 0 300 >page.a 2>&1) &
timeout 60 python3 page.py b/page 1 300 >page.b 2>&1
wait $!
same "and one page" "" "$(cat page.a page.b)"
down ./b
down ./a
check "fsck at the end" clean ./data
