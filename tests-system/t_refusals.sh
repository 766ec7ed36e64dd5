# What is refused, word for word: dead daemons, busy folders, foreign folders, the mount helper, TCP.
. "$(dirname "$0")/lib.sh"
require
TEST=refusals
cd "$WORK" || exit 1

up ./data ./mnt
text=$("$PANDO" serve ./data 2>&1)
same "a served folder exits 5" 5 $?
same "and says by whom" "pando serve: ./data is in use by pid $SERVER (host $(hostname))
  do: stop it, or mount unix:./data/pando.sock" "$text"

kill9 "$SERVER"
"$PANDO" mount --data ./other ./mnt >out 2>&1
same "another mount on a dead one exits 5" 5 $?
same "and says why" "pando mount: ./mnt: transport endpoint is not connected (its daemon died)
  do: run the same mount again, or \`umount -l ./mnt\`" "$(cat out)"
check "the same mount again works" "$PANDO" mount ./data ./mnt
down ./mnt

mkdir -p foreign/lost+found && touch foreign/x.db foreign/1 foreign/2 foreign/3
text=$("$PANDO" format ./foreign 2>&1)
same "a foreign folder exits 5" 5 $?
same "what is in it is named" "pando format: ./foreign: files present that are not PandoFS's (1, 2, 3 more)
  do: choose an empty folder" "$text"

mkdir empty
text=$("$PANDO" mount.fuse.pando ./empty ./mnt -o rw,_netdev 2>&1)
same "the helper exits 32" 32 $?
same "and creates nothing" "pando mount: ./empty holds no file system and this mount may not create one
  do: is the disk mounted? else \`pando format ./empty\`" "$text"
same "really nothing" "" "$(ls -A empty)"
check "format" "$PANDO" format ./empty
check "the helper mounts what is there" "$PANDO" mount.fuse.pando ./empty ./mnt -o rw,noatime
down ./mnt
ln -s "$PANDO" mount.fuse.pando
check "by its own name, too" ./mount.fuse.pando ./empty ./mnt -n -o ro
check "ro is read-only" bash -c '! touch mnt/x 2>/dev/null'
down ./mnt
"$PANDO" format ./empty >out 2>&1
same "formatting twice exits 5" 5 $?

text=$("$PANDO" serve ./empty --listen 0.0.0.0:7420 2>&1)
same "TCP without TLS exits 4" 4 $?
same "and says why" "pando serve: 0.0.0.0:7420: refusing to listen without TLS
  do: \`--tls-cert\`/\`--tls-key\`, or \`--insecure\` on a trusted network (any TCP, loopback too); TLS is not in this version: \`--insecure\`, or a unix socket" "$text"

text=$("$PANDO" umount ./mnt 2>&1)
same "umount of nothing exits 5" 5 $?
same "and says so" "pando umount: ./mnt: not a PandoFS mount
  do: \`findmnt -t fuse.pando\` lists the mounts" "$text"

# Who keeps a mount busy, and whose it is.
up ./data ./mnt
mkdir mnt/inner && mount -t tmpfs none mnt/inner || die "mount -t tmpfs"
loops+=("$WORK/mnt/inner")
text=$("$PANDO" umount ./mnt 2>&1)
same "umount below another mount exits 5" 5 $?
same "and names that" "pando umount: ./mnt: busy: ./mnt/inner (mounted in it)
  do: \`umount ./mnt/inner\` first, or \`pando umount --lazy ./mnt\` with all in it" "$text"
umount mnt/inner
# Where others may run it.
cp "$PANDO" ./pando
as_nobody() { setpriv --reuid nobody --regid nogroup --clear-groups env HOME=/nonexistent ./pando "$@"; }
text=$(as_nobody umount ./mnt 2>&1)
same "umount of another user's mount exits 4" 4 $?
same "and says so" "pando umount: ./mnt: not permitted: mounted by another user" "$text"
down ./mnt
text=$(as_nobody serve ./data 2>&1)
same "another user's folder exits 4" 4 $?
same "and the folder is named" "pando serve: ./data: permission denied
  do: run it as the user who owns the folder, or as root" "$text"
mkdir ro && mount --bind data ro && mount -o remount,ro,bind ro || die "a read-only folder"
loops+=("$WORK/ro")
text=$("$PANDO" mount ./ro ./mnt 2>&1)
same "a read-only folder exits 1" 1 $?
same "and is named" "pando mount: ./ro: read-only file system
  do: remount its disk writable, or choose another folder" "$text"
umount ro

# A server that is gone leaves those who wait for it, and they are nowhere to be seen.
"$PANDO" format ./gone --name "x y" >out 2>&1
"$PANDO" serve ./gone >out 2>&1 &
SERVER=$!
disown
pids+=("$SERVER")
for n in $(seq 100); do grep -q 'is served' out && break; sleep 0.05; done
same "an attached mount knows its file system's name" "x y is mounted at $PWD/mnt" \
    "$("$PANDO" mount ./gone ./mnt 2>&1 | sed 's/ (pid.*//')"
kill9 "$SERVER"
ls -la mnt >/dev/null 2>&1 &
waits=$!
pids+=("$waits")
for n in $(seq 100); do grep -q '(ls) [SD]' "/proc/$waits/stat" && break; sleep 0.05; done
text=$("$PANDO" umount ./mnt 2>&1)
same "umount of a mount whose server is gone exits 5" 5 $?
same "and says that" \
    "pando umount: ./mnt: busy: its server is gone or not reachable (unix:$PWD/gone/pando.sock: connection refused)
  do: start its server again, or \`pando umount --force ./mnt\`: what waits for it fails then" "$text"
check "and that works" "$PANDO" umount --force ./mnt
wait "$waits" && fail "who waited" "did not fail" || pass "who waited fails"

# In the foreground a mount leaves the directory from which it was named.
"$PANDO" mount ./data m4 -f >out 2>err &
SERVER=$!
pids+=("$SERVER")
for n in $(seq 200); do grep -q 'is mounted at' out && break; sleep 0.05; done
same "-f names the whole mount point" "is mounted at $WORK/m4" "$(grep -o 'is mounted at [^(]*[^( ]' out)"
check "and it ends" "$PANDO" umount ./m4

# Advice that fits the place.
up ./data ./mnt
for words in "compact ./mnt" "journal inspect ./mnt" "backup create ./mnt ./b.pando" "fsck ./mnt"; do
    # Several words.
    # shellcheck disable=SC2086
    text=$("$PANDO" $words 2>&1)
    same "$words: the data folder is named" "is a mount; the data folder is $(pwd -P)/data" \
        "$(head -n 1 <<<"${text#*./mnt }")"
done
same "and the command for it" "  do: \`pando fsck $(pwd -P)/data\`" "$(tail -n 1 <<<"$text")"
check "a second mount" "$PANDO" mount ./data ./mnt2
text=$("$PANDO" compact ./mnt2 2>&1)
same "a mount over the socket, too" "pando compact: ./mnt2 is a mount; the data folder is $(pwd -P)/data" \
    "$(head -n 1 <<<"$text")"
text=$("$PANDO" client info 7 --cluster ./data 2>&1)
same "an unknown client: what lists them" "pando client: ./data: no client 7
  do: \`pando client ls\`" "$text"
check "detached" "$PANDO" umount ./mnt2
text=$("$PANDO" mount unix:./data/pando.sock ./mnt2 -o log=./none/x.log 2>&1)
same "a log in a folder that is not there" "5 pando mount: mount option log: ./none/x.log: its folder is not there" "$? $(head -n 1 <<<"$text")"
check "is not made" test ! -e none
text=$("$PANDO" mount unix:./data/pando.sock ./mnt2 -o log=/proc/self/log 2>&1)
same "a log that cannot be written: which option" "  do: name a file you may write: \`-o log=FILE\`" \
    "$(tail -n 1 <<<"$text")"
down ./mnt
text=$("$PANDO" mount ./data ./mnt -o log=/proc/self/log 2>&1)
same "of a data folder, too" "  do: name a file you may write: \`-o log=FILE\`, or \`log_file\` in pando.toml" \
    "$(tail -n 1 <<<"$text")"
text=$("$PANDO" mount ./data ./mnt -o subdir=/nope 2>&1)
same "a subdir that is not there" "pando mount: /nope in ./data: no such file or directory
  do: name a directory of the file system" "$text"
# What the resolver says depends on the network.
text=$("$PANDO" mount nosuch.invalid ./mnt --timeout 5 2>&1)
same "a bare word may have been a folder: exit 3" 3 $?
same "and how to write one" "  do: for a folder write ./nosuch.invalid" "$(tail -n 1 <<<"$text")"

# Damage exits 4 in a backup's copy and in its source, served or not.
up ./data ./mnt
printf 'content of a packed file' >mnt/packed
down ./mnt
check "a good backup" "$PANDO" backup create ./data ./good.pando
head -c -1 good.pando >cut.pando
text=$("$PANDO" backup verify ./cut.pando 2>&1)
same "a cut backup exits 4" 4 $?
segment=$(grep -rlF 'content of a packed file' data/data | head -n 1)
at=$(grep -abFo 'content of a packed file' "$segment" | head -n 1 | cut -d: -f1)
printf 'X' | dd of="$segment" bs=1 seek="$at" conv=notrunc status=none
text=$("$PANDO" backup create ./data ./bad.pando 2>&1)
same "a backup of damaged data exits 4" 4 $?
same "and says what looks closer" "  do: \`pando fsck ./data\`" "$(tail -n 1 <<<"$text")"
up ./data ./mnt
served=$("$PANDO" backup create ./data ./bad.pando 2>&1)
same "by its server, too" "4 $text" "$? $served"
down ./mnt

# A mount over its own data folder would wait for itself for ever.
mkdir -p p && check "format below p" "$PANDO" format p/data
refused() {
    text=$(timeout -s KILL 60 "$PANDO" mount "$1" "$2" 2>&1)
    same "$3 exits 5" 5 $?
    same "and says why" "pando mount: $4
  do: choose a mount point outside of the file system's folders" "$text"
}
refused p/data p/data "a mount on the data folder" "p/data: is the data folder of this file system"
refused p/data p "a mount above the data folder" "p: the data folder p/data lies in it"
refused p/data p/data/mnt "a mount in the data folder" "p/data/mnt: lies in the data folder p/data"
same "and nothing is made there" "" "$(ls p/data | grep mnt)"
refused new/fs new "the same for a folder that is not there yet" "new: the data folder new/fs lies in it"
up p/data ./mnt
refused unix:p/data/pando.sock p "and for a socket in the folder" "p: the data folder $PWD/p/data lies in it"
down ./mnt

# Data that is gone is no empty store.
up ./lost ./mnt
head -c 1000000 /dev/urandom >mnt/big && echo small >mnt/small
down ./mnt
mv lost/data away
text=$("$PANDO" mount ./lost ./mnt 2>&1)
same "a folder without its data exits 5" 5 $?
same "and says what is missing" "pando mount: $PWD/lost/data should hold this file system's data and does not
  do: is the disk mounted? else restore it from a backup" "$text"
"$PANDO" fsck ./lost >out 2>&1
same "fsck finds it" 4 $?
mv away lost/data
check "with its data it is in order" clean ./lost

# What a failed mount made for itself it takes away again.
"$PANDO" mount ./foreign ./m9/below >out 2>&1
same "a mount of a foreign folder exits 5" 5 $?
same "and leaves no folder" "" "$(ls -d m9 2>/dev/null)"
