#!/usr/bin/env bash
# medians.sh FILE...: one cost file of several that were measured: of each cost the median, with the least and the most.
set -eu
awk '
    { key = $1 == "#" ? $1 " " $2 : $1; value = $1 == "#" ? $3 : $2 }
    value !~ /^[0-9]+$/ { next }
    !(key in count) { order[++keys] = key; comment[key] = /not measured/ ? substr($0, index($0, "not measured")) : "" }
    { values[key, ++count[key]] = value }
    END {
        print "# Nanoseconds of CPU: median, least and most of " ARGC - 1 " rounds; the median counts."
        for (k = 1; k <= keys; k++) {
            key = order[k]; n = count[key]
            for (i = 1; i <= n; i++) sorted[i] = values[key, i] + 0
            for (i = 2; i <= n; i++) for (j = i; j > 1 && sorted[j - 1] > sorted[j]; j--) { t = sorted[j]; sorted[j] = sorted[j - 1]; sorted[j - 1] = t }
            said = comment[key] != "" ? comment[key] : sorted[1] " to " sorted[n]
            printf "%-20s %8d   # %s\n", key, sorted[int((n + 1) / 2)], said
        }
    }' "$@"
