#!/usr/bin/env bash
# The rank with its journal and store on one CPU, load generator included: create and unlink, mkdir and rmdir, in private directories;
# and if asked for create and unlink of the entries of one single directory.
# Answers are those of an embedded mount: applied and journalled, on disk a few milliseconds later.
#
#   FILES=5600000 DIRS=3300000    per thread; there are 4; 0 leaves them out. A phase counts when it took 60 s and had 3 checkpoints
#   EACH=10000                    names per directory
#   SHARED=0                      entries of the single directory, made by the 4 threads together; wanted: 60000 creates/s with 10000000
#   CPU=1 JOURNAL=1G CACHE_LIMIT=4G   the last two are the defaults of a server
. "$(dirname "$0")/lib.sh"
FILES=${FILES:-5600000} DIRS=${DIRS:-3300000} EACH=${EACH:-10000} SHARED=${SHARED:-0} CPU=${CPU:-1} JOURNAL=${JOURNAL:-1G} CACHE_LIMIT=${CACHE_LIMIT:-4G}

begin "survey: taskset -c $CPU pando bench survey --threads 4 --files $FILES (directories: $DIRS), $EACH in each of --dirs; one directory of $SHARED; --depth 32; journal_size $JOURNAL, mds_cache_memory_limit $CACHE_LIMIT" taskset
printf 'journal_size = "%s"\nmds_cache_memory_limit = "%s"\n' "$JOURNAL" "$CACHE_LIMIT" >"$WORK/pando.toml"

# one TESTS COUNT [1]: in one single directory the figures are called shared.TEST.
one() {
    local pid anonymous=0 now test dirs=${3:-$(($2 * 4 / EACH))} key=${3:+shared.}
    rm -rf "$WORK/data"
    taskset -c "$CPU" "$PANDO" --conf "$WORK/pando.toml" bench survey "$WORK/data" --threads 4 --files "$2" --dirs "$dirs" --depth 32 --tests "$1" >"$WORK/out" &
    pid=$!
    pids+=("$pid")
    until gone $pid; do
        now=$(sed -n 's/^RssAnon:[^0-9]*\([0-9]*\).*/\1/p' /proc/$pid/status 2>/dev/null || true)
        [ "${now:-0}" -le $anonymous ] || anonymous=$now
        sleep 0.5
    done
    wait $pid
    cat "$WORK/out"
    echo "anonymous memory at its peak $((anonymous / 1024)) MiB"
    note "anonymous.$key$1" $((anonymous / 1024))
    note "peak.$key$1" "$(sed -n 's/.*at its peak \([0-9]*\) MiB/\1/p' "$WORK/out")"
    for test in ${1//,/ }; do
        note "$key$test" "$(phase "$test" 3 <"$WORK/out")"
        note "cpu.$key$test" "$(phase "$test" 6 <"$WORK/out")"
        note "seconds.$key$test" "$(awk -v test="$test" '$1 == test { print $2 / $3 }' "$WORK/out")"
        note "checkpoints.$key$test" "$(sed -n "s/^checkpoints.* $test \([0-9]*\).*/\1/p" "$WORK/out")"
    done
}

for ((round = 1; round <= ROUNDS; round++)); do
    echo "round $round:"
    [ "$FILES" = 0 ] || one create,unlink "$FILES"
    [ "$DIRS" = 0 ] || one mkdir,rmdir "$DIRS"
    [ "$SHARED" = 0 ] || one create,unlink $((SHARED / 4)) 1
done

echo
echo "one CPU; median (least to most); CPU s of all threads"
done_tests=
[ "$FILES" = 0 ] || done_tests+=" create,unlink"
[ "$DIRS" = 0 ] || done_tests+=" mkdir,rmdir"
[ "$SHARED" = 0 ] || done_tests+=" shared.create,unlink"
each=${done_tests//shared.create,unlink/shared.create shared.unlink}
for test in ${each//,/ }; do
    echo "$test: $(of $test)/s; $(of seconds.$test) s, $(of checkpoints.$test) checkpoints, CPU s $(of cpu.$test)"
done
for tests in $done_tests; do
    echo "$tests: memory at its peak $(of anonymous.$tests) MiB anonymous, $(of peak.$tests) MiB with pages of the store; the rank's cache may use $CACHE_LIMIT"
done
echo "durability: applied and journalled, on disk a few milliseconds later"
echo "wanted: create 200000/s, unlink 150000/s, mkdir and rmdir the same; shared (one directory of 10000000): create 60000/s"
