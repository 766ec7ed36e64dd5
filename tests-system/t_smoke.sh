# Every verb and every kind of file once, on a real mount; the texts of mount and umount.
. "$(dirname "$0")/lib.sh"
require setfacl setfattr getfattr flock
TEST=smoke
cd "$WORK" || exit 1

text=$("$PANDO" mount ./data ./mnt 2>&1) || die "$text"
fsid=$(sed -n 's/^created file system pandofs \([0-9a-f]\{8\}\) in \.\/data (format 1, embedded, 1 rank)$/\1/p' <<<"$text")
[ -n "$fsid" ] && pass "mount says what it created" || fail "mount says what it created" "$text"
pid=$(sed -n "s|^pandofs is mounted at $WORK/mnt (pid \([0-9]*\), log ./data/log/pando.log)$|\1|p" <<<"$text")
[ -n "$pid" ] && pass "mount says where" || fail "mount says where" "$text"

again=$("$PANDO" mount ./data ./mnt 2>&1)
same "a second mount there exits 5" 5 $?
same "and says so" "pando mount: ./mnt is already a PandoFS mount (pid $pid)
  do: \`pando umount ./mnt\`" "$again"

cd mnt || exit 1
echo hello >a && check "write and read" grep -q hello a
check "mkdir, deep" mkdir -p d/e/f
check "hard link" ln a d/b
same "link count" 2 "$(stat -c %h a)"
check "symlink" ln -s ../a d/s
same "readlink" ../a "$(readlink d/s)"
check "rename over" mv d/b a2
check "fifo" mkfifo fifo
check "device" mknod null c 1 3
same "device numbers" "1 3" "$(stat -c '%t %T' null)"
check "chmod" chmod 4711 a
same "mode" 4711 "$(stat -c %a a)"
check "chown" chown 12:34 a2
same "owner" "12:34" "$(stat -c %u:%g a2)"
same "chown clears setuid" 711 "$(stat -c %a a)"
check "nanoseconds" touch -d '2001-02-03 04:05:06.123456789Z' a
same "mtime" 981173106.123456789 "$(stat -c %.9Y a)"
check "user xattr" setfattr -n user.x -v y a
check "trusted xattr" setfattr -n trusted.t -v u a
same "xattr" y "$(getfattr --only-values -n user.x a)"
same "xattrs are listed" "user.x" "$(getfattr a | sed -n 2p)"
check "acl" setfacl -m u:12:rwx,d:g:34:rx d
same "acl is kept" "user:12:rwx" "$(getfacl -np d 2>/dev/null | grep ^user:12)"
check "default acl is inherited" bash -c 'mkdir d/i && getfacl -np d/i | grep -q ^default:group:34:r-x'
check "truncate up" truncate -s 10G a
same "sparse" 10737418240 "$(stat -c %s a)"
check "truncate down" truncate -s 3 a
same "content" hel "$(cat a)"
check "fallocate" fallocate -l 1M f1
check "punch" fallocate -p -o 4096 -l 8192 f1
check "append" bash -c 'echo more >>a; echo more >>a; test $(stat -c %s a) = 13'
check "mmap and O_DIRECT" bash -c 'dd if=/dev/zero of=dio bs=4096 count=4 oflag=direct status=none && cmp -n 16384 dio /dev/zero'
check "unlinked but open" bash -c 'exec 3<>gone; echo x >&3; rm gone; test "$(cat /proc/$$/fd/3)" = x'
check "flock excludes" bash -c 'exec 3>l; flock 3; ! flock -n l true'
check "a program that runs is not cut" bash -c 'cp "$(type -P sleep)" run && { ./run 60 & } && perl -MFcntl -e "exit(sysopen(my \$f, q(run), O_RDONLY | O_TRUNC) ? 1 : 0)"; cut=$?; kill $!; [ $cut = 0 ] && cmp run "$(type -P sleep)"'
check "long name" touch "$(printf 'n%.0s' {1..255})"
check "too long a name is refused" bash -c '! touch "$(printf "n%.0s" {1..256})" 2>/dev/null'
check "rmdir of a full directory is refused" bash -c '! rmdir d 2>/dev/null'
check "many names" bash -c 'mkdir many && cd many && touch $(seq 5000) && test $(ls | sort -u | wc -l) = 5000'
check "rm -r" rm -r many
check "statfs" test "$(df --output=size . | tail -n 1)" -gt 0
check "other users may enter" setpriv --reuid=65534 --regid=65534 --clear-groups ls .
check "and are held back" bash -c '! setpriv --reuid=65534 --regid=65534 --clear-groups touch x 2>/dev/null'
check "names of any bytes" touch "$(printf 'a\xff\x01b')"
cd ..

sleep 1000 <mnt/a &
holder=$!
pids+=($holder)
until [ "$(readlink /proc/$holder/fd/0)" = "$WORK/mnt/a" ] && [ "$(cat /proc/$holder/comm)" = sleep ]; do sleep 0.02; done
busy=$("$PANDO" umount ./mnt 2>&1)
same "umount of a busy mount exits 5" 5 $?
same "and names who" "pando umount: ./mnt: busy: sleep (pid $holder, ./mnt/a)" "$(head -n 1 <<<"$busy")"
kill $holder
wait $holder 2>/dev/null

check "status inside" grep -qx "    id:       $fsid" <("$PANDO" status ./mnt)
check "status as JSON carries its schema" bash -c '"$0" status --format json ./mnt | grep -q "\"schema\":1"' "$PANDO"
check "status through the socket" grep -qx "    id:       $fsid" <("$PANDO" status --cluster unix:./data/pando.sock)
check "client ls names this mount" bash -c '"$0" client ls --cluster ./data | grep -q "$1"' "$PANDO" "$WORK/mnt"
sum=$(cd mnt && find . -type f -size -1M -print0 | sort -z | xargs -0 sha256sum | sha256sum)
check "umount" "$PANDO" umount ./mnt
# A daemon that only waits to be reaped has let go of everything.
same "umount waited for the daemon" "" "$(grep -sh '^State:' /proc/$pid/status | grep -v Z)"
check "fsck" clean ./data
check "journal inspect" grep -q " put 0x1/a " <("$PANDO" journal inspect ./data)
text=$("$PANDO" mount ./data ./mnt 2>&1)
same "the second time nothing is created" 0 "$(grep -c created <<<"$text")"
same "all is there" "$sum" "$(cd mnt && find . -type f -size -1M -print0 | sort -z | xargs -0 sha256sum | sha256sum)"
check "backup of a served folder" "$PANDO" backup create ./data ./backup.pando
check "backup verify" "$PANDO" backup verify ./backup.pando
check "compact" grep -q "^checkpoint started;" <("$PANDO" compact ./data)
down ./mnt
check "backup restore" "$PANDO" backup restore ./backup.pando ./restored
check "fsck of the restored" clean ./restored
up ./restored ./mnt2
same "the restored tree" "$sum" "$(cd mnt2 && find . -type f -size -1M -print0 | sort -z | xargs -0 sha256sum | sha256sum)"
down ./mnt2
