# One directory at three ranks: an operator spreads it, and one that hash placement gives to several ranks is spread when it grows. Programs
# make, list, move and remove names in it through a mount, while ranks and then the whole process die; it goes back to one part, and is
# spread again; nothing is missed or seen twice, and the folder is clean.
. "$(dirname "$0")/lib.sh"
. "$HERE/ranks.sh"
require python3 setfattr getfattr
TEST=dirfrag
NAMES=3000
cd "$WORK" || exit 1

serve_ranks 3 1
all() { serve_all 3; }
# ranks DIR: the ranks that have parts of it.
ranks() { "$PANDO" dirfrag ls "$1" | awk 'NR > 1 { print $2 }' | sort -nu | xargs; }
in_one_part() { [ "$("$PANDO" dirfrag ls "$1" | awk 'NR > 1 { print $1 }')" = 0x0/0 ]; }
at_three() { [ "$(ranks "$1")" = "0 1 2" ]; }
# listed DIR: how many names it has, each counted once, and how many it says that it has.
listed() { echo "$(find "$1" -mindepth 1 -maxdepth 1 -printf '%f\n' | wc -l) $(find "$1" -mindepth 1 -maxdepth 1 -printf '%f\n' | sort -u | wc -l) $(stat -c %s "$1")"; }

check "three are wanted" ask fs set pandofs max_mds 3
check "three serve" within all
"$PANDO" -q mount unix:./data/pando.sock ./mnt 2>err || die "mount: $(cat err)"
mkdir mnt/one
(cd mnt/one && seq -f 'f%.0f' $NAMES | xargs touch) || die "touch"
same "in one part" "FRAG   RANK
0x0/0  0" "$("$PANDO" dirfrag ls mnt/one)"
same "nothing to put together" "5 1" "$("$PANDO" dirfrag merge mnt/one >out 2>&1; echo "$? $(grep -c ': its names are in one part' out)")"
check "an operator spreads it" "$PANDO" dirfrag split mnt/one
check "it is at three ranks" within at_three mnt/one
same "all names are there once" "$NAMES $NAMES $NAMES" "$(listed mnt/one)"
same "it is not divided again" 2 "$("$PANDO" dirfrag split mnt/one 9 >out 2>&1; echo $?)"
same "eight parts" 8 "$("$PANDO" --format json dirfrag ls mnt/one | python3 -c 'import json,sys; print(len(json.load(sys.stdin)["dirfrags"]))')"

(cd mnt/one && seq -f 'g%.0f' $NAMES | xargs touch) || die "touch"
same "as many again" "$((2 * NAMES)) $((2 * NAMES)) $((2 * NAMES))" "$(listed mnt/one)"
check "names move from part to part" python3 - <<'PY'
import os
os.chdir('mnt/one')
for n in range(1, 501):
    os.rename(f'g{n}', f'h{n}')
for n in range(1, 101):
    os.link(f'f{n}', f'l{n}')
    os.unlink(f'f{n}')
    assert os.stat(f'l{n}').st_nlink == 1
open('content', 'w').write('bytes')
os.fsync(os.open('content', os.O_RDONLY))
os.fsync(os.open('.', os.O_RDONLY))
PY
names=$((2 * NAMES + 1))
same "none more, none less" "$names $names $names" "$(listed mnt/one)"
for rank in 1 2 0; do
    before=$(life $rank)
    check "rank $rank dies" ask tell mds.$rank crash
    check "its next life serves" within later $rank "$before"
    same "and all names are there" "$names $names $names" "$(listed mnt/one)"
done
kill9 "$SERVER"
# From here on directories are spread by themselves.
echo 'mds_bal_split_size = 10000' >>"$WORK/pando.toml"
serve ./data --ranks 3 --conf "$WORK/pando.toml"
check "killed: three serve again" within all
same "killed: all names are there" "$names $names $names" "$(listed mnt/one)"
same "and bytes" bytes "$(cat mnt/one/content)"
mkdir mnt/one/sub mnt/elsewhere
check "directories in it" sh -c 'for n in $(seq 20); do mkdir mnt/one/sub.$n && echo $n >mnt/one/sub.$n/file || exit; done'
same "what is in them" 210 "$(cat mnt/one/sub.*/file | awk '{ sum += $1 } END { print sum }')"

# The way back, while names come and go.
(cd mnt/one && for n in $(seq 200); do : >during.$n && rm during.$n || exit; done) & busy=$!
check "an operator has it put together" "$PANDO" dirfrag merge mnt/one
check "it is in one part" within in_one_part mnt/one
wait "$busy" || die "names while it was merged"
names=$((names + 21))
same "merged: all names are there once" "$names $names $names" "$(listed mnt/one)"
for rank in 0 1; do
    before=$(life $rank)
    check "merged: rank $rank dies" ask tell mds.$rank crash
    check "merged: its next life serves" within later $rank "$before"
    same "merged: and all names are there" "$names $names $names" "$(listed mnt/one)"
done
same "bytes after that" bytes "$(cat mnt/one/content)"
check "distributed" setfattr -n ceph.dir.pin.distributed -v 1 mnt/one
# Its rank has begun just now: parts that it may not give away yet go a little later.
check "it is spread in another way" "$PANDO" dirfrag split mnt/one 2
check "it is at three ranks again" within at_three mnt/one
same "pinned to several ranks" 5 "$("$PANDO" dirfrag merge mnt/one >out 2>&1; echo $?)"
check "no more" setfattr -n ceph.dir.pin.distributed -v 0 mnt/one
same "again: all names are there once" "$names $names $names" "$(listed mnt/one)"
kill9 "$SERVER"
serve ./data --ranks 3 --conf "$WORK/pando.toml"
check "killed again: three serve" within all
same "killed again: all names are there" "$names $names $names" "$(listed mnt/one)"
check "it is put together again" "$PANDO" dirfrag merge mnt/one
check "and is in one part" within in_one_part mnt/one
same "merged again: all names are there" "$names $names $names" "$(listed mnt/one)"

# One that grows by itself.
check "hash placement" ask fs set pandofs placement hash
mkdir mnt/grows mnt/grows/dir
(cd mnt/grows/dir && seq -f 'f%.0f' 10500 | xargs touch) || die "touch"
check "it is spread when it has grown" within at_three mnt/grows/dir
same "all names are there once" "10500 10500 10500" "$(listed mnt/grows/dir)"
check "a tree with it is removed" rm -r mnt/grows
check "and the other" rm -r mnt/one
same "nothing of them is left" elsewhere "$(ls mnt)"
"$PANDO" -q umount ./mnt 2>err || die "umount: $(cat err)"
kill -TERM "$SERVER" && wait_gone "$SERVER"
check "fsck" clean ./data
