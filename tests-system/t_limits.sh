# A mount that is limited to a directory of which three ranks have parts: it works there as any other, and sees nothing else, whatever is moved out while it
# stands in it, whichever rank dies. And a server that listens at a place where mounts get that directory only.
. "$(dirname "$0")/lib.sh"
. "$HERE/ranks.sh"
require setfattr
TEST=limits
cd "$WORK" || exit 1

serve_ranks 4 3
"$PANDO" -q mount "unix:$WORK/data/pando.sock" "$WORK/mnt" 2>err || die "mount: $(cat err)"
mkdir -p mnt/t/a mnt/t/other lim lim2 && pinned t/a/x 1 && pinned t/a/x/deep 2 && pinned t/other/o 1 || die "directories"
echo secret >mnt/t/other/o/secret && echo text >mnt/t/a/x/deep/open || die "files"

# refused CODE ARGS...: a mount that is not made.
refused() {
    local code=$1
    shift
    "$PANDO" -q mount "$@" >"$WORK/out" 2>&1
    [ $? = "$code" ]
}
check "limited to nothing" refused 2 -o limited "unix:$WORK/data/pando.sock" "$WORK/lim"
check "limited to all" refused 2 -o subdir=/,limited "unix:$WORK/data/pando.sock" "$WORK/lim"
check "limited to what is not there" refused 1 -o subdir=/t/none,limited "unix:$WORK/data/pando.sock" "$WORK/lim"
"$PANDO" -q mount -o subdir=/t/a,limited "unix:$WORK/data/pando.sock" "$WORK/lim" 2>err || die "a limited mount: $(cat err)"
same "its root is the directory" x "$(ls lim)"
check "the server says to what it is limited" [ "$(ask client ls --json | grep -o '"limit":"0x' | wc -l)" = 1 ]

# Work in it, over all ranks.
work() {
    local n
    mkdir lim/w lim/x/w lim/x/deep/w || return 1
    for n in $(seq 20); do echo "$n" >lim/w/$n || return 1; done
    mv lim/w/1 lim/x/w/ && mv lim/w/2 lim/x/deep/w/ && mv lim/w lim/x/deep/moved && ln lim/x/deep/moved/3 lim/x/w/three || return 1
    mv lim/x/deep/moved/4 lim/four && rm lim/x/w/three lim/x/deep/w/2 && rmdir lim/x/deep/w || return 1
    cp -r lim/x/deep/moved lim/copy && rm -r lim/copy
}
check "work in it" work
check "is there for others" diff -r mnt/t/a lim
mv mnt/t/other/o/secret mnt/t/a/x/secret || die "moved in"
same "what is moved in is read" secret "$(cat lim/x/secret)"
mv mnt/t/a/x/secret mnt/t/other/o/secret || die "moved out"

# Who stands in it, and has a file open, when it is moved out.
exec 7<lim/x/deep/open 8<lim/x/deep || die "opened"
listed() { ls "/proc/$$/fd/8/" >"$WORK/out" 2>&1; }
denied() { ! listed && grep -q 'Permission denied' "$WORK/out"; }
check "it is listed" listed
mv mnt/t/a/x mnt/t/other/x || die "moved out"
check "who stands in it is refused soon" within denied
check "its name is gone" [ ! -e lim/x ]
same "the file is open" text "$(cat <&7)"
check "rank 1 dies" harm 1 fail
check "refused after that" within denied
kill9 "$SERVER"
serve "$WORK/data" --ranks 4 --conf "$WORK/pando.toml" 7<&- 8<&-
check "all serve again" within serve_all 3
check "refused after that, too" within denied
mv mnt/t/other/x mnt/t/a/x || die "moved back"
check "moved back it is listed" within listed
check "and found" within ls lim/x/deep/open
exec 7<&- 8<&-
check "renamed it follows" mv mnt/t/a mnt/t/b
check "as before" within ls lim/x/deep/open
mv mnt/t/b mnt/t/a || die "its name"
"$PANDO" umount lim >err 2>&1 || die "umount: $(cat err)"

# A server that hands nothing else out at one place.
"$PANDO" umount mnt >err 2>&1 || die "umount: $(cat err)"
kill "$SERVER" && wait "$SERVER" || die "the server ended with $?: $(tail -n 3 serve.out)"
serve "$WORK/data" --ranks 4 --conf "$WORK/pando.toml" --limited "/t/a=unix:$WORK/lim.sock"
check "all serve" within serve_all 3
within test -S lim.sock || die "no limited place"
"$PANDO" -q mount "unix:$WORK/lim.sock" "$WORK/lim2" 2>err || die "a mount of that place: $(cat err)"
check "its mount shows that directory" [ -e lim2/x/deep/open ]
check "and nothing else" [ ! -e lim2/t ]
check "it works in it" bash -c 'echo more >lim2/x/deep/more && mv lim2/x/deep/more lim2/ && rm lim2/more'
"$PANDO" status --cluster "unix:$WORK/lim.sock" >out 2>&1
same "operators are not answered there" 4 $?
check "a mount that wants something else is refused" refused 4 -o subdir=/x,limited "unix:$WORK/lim.sock" "$WORK/lim"
"$PANDO" umount lim2 >err 2>&1 || die "umount: $(cat err)"
kill "$SERVER" && wait "$SERVER" || die "the server ended with $?: $(tail -n 3 serve.out)"
"$PANDO" serve "$WORK/data" --ranks 4 --conf "$WORK/pando.toml" --limited "/t/none=unix:$WORK/none.sock" >out 2>&1
same "a directory that is not there is refused" 1 $?
check "fsck" clean data
