# A restore that does not finish leaves a folder that nothing takes for a file system.
. "$(dirname "$0")/lib.sh"
require
TEST=restore
cd "$WORK" || exit 1

up ./data ./mnt
for n in $(seq 50); do head -c 100000 /dev/urandom >mnt/f$n; done
sums=$(cd mnt && md5sum f*)
down ./mnt
check "backup" "$PANDO" backup create ./data whole
head -c 3000000 whole >cut
"$PANDO" backup restore cut ./new >out 2>&1
same "a backup that is cut short fails" 4 $?
[ "$(du -sm new | cut -f 1)" -lt 2 ] && pass "and leaves no content" || fail "and leaves no content" "$(du -a new)"
wanted="./new is half restored: an earlier restore from a backup did not finish
  do: restore again: \`pando backup restore FILE ./new\`"
for verb in "mount ./new ./mnt" "mount -o nocreate ./new ./mnt" "format ./new" "serve ./new"; do
    text=$("$PANDO" $verb 2>&1)
    same "$verb exits 5" 5 $?
    same "and says why" "pando ${verb%% *}: $wanted" "$text"
done
text=$("$PANDO" mount.fuse.pando ./new ./mnt 2>&1)
same "so does the helper" "pando mount: $wanted" "$text"
text=$("$PANDO" fsck ./new 2>&1)
same "and fsck" "pando fsck: $wanted" "$text"
check "restoring again works" "$PANDO" backup restore whole ./new
up ./new ./mnt
same "everything is there" "$sums" "$(cd mnt && md5sum f*)"
down ./mnt
check "fsck" clean ./new
