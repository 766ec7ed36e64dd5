"""Reads the folder that run.sh wrote and prints medians over the rounds, ratios of PandoFS to each other system, CPU
seconds and what each system's answers promise.

    report.py DIR TICKS_PER_SECOND

Absent: measuring.
"""

import json
import pathlib
import statistics
import sys

PHASES = {
    "file-create": "create+write",
    "file-stat": "stat",
    "again-stat": "stat again",
    "file-read": "open/close",
    "file-remove": "remove",
}


def ticks(path):
    """{pid: (ticks, command)} of a file with lines "PID TICKS COMMAND"."""
    rows = (line.split(" ", 2) for line in path.read_text().splitlines())
    return {pid: (int(used), command) for pid, used, command in rows}


def read_round(folder, name, per_second):
    """One system in one round: rates per phase, and CPU seconds of one mdtest, in all and by command."""
    ops, seconds, turns = dict.fromkeys(PHASES, 0), dict.fromkeys(PHASES, 0.0), 0
    for path in folder.glob(f"{name}-*.json"):
        for phase in json.loads(path.read_text())["iterations"][0]:
            ops[phase["name"]] += phase["ops"]
            seconds[phase["name"]] += phase["seconds"]
        for phase in json.loads(path.with_suffix(".again").read_text())["iterations"][0]:
            known = phase["name"].replace("file-stat", "again-stat")
            ops[known] += phase["ops"]
            seconds[known] += phase["seconds"]
        turns += 1
    before, after = ticks(folder / f"{name}.before"), ticks(folder / f"{name}.after")
    commands = {}
    for pid, (used, command) in after.items():
        spent = (used - before.get(pid, (0, ""))[0]) / per_second / turns
        commands[command] = commands.get(command, 0.0) + spent
    rates = {phase: ops[phase] / seconds[phase] for phase in PHASES}
    return {"rates": rates, "turns": turns, "cpu": sum(commands.values()), "commands": commands}


def spread(values, form):
    middle = form.format(statistics.median(values))
    if len(values) == 1:
        return middle
    return f"{middle} ({form.format(min(values))} to {form.format(max(values))})"


def table(rows):
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    for row in rows:
        cells = [row[0].ljust(widths[0])] + [cell.rjust(width) for cell, width in zip(row[1:], widths[1:])]
        print("  ".join(cells).rstrip())
    print()


def main():
    folder, per_second = pathlib.Path(sys.argv[1]), int(sys.argv[2])
    systems = [line.split("\t") for line in (folder / "systems").read_text().splitlines()]
    found = {}
    for name, _, _ in systems:
        rounds = {path.name.split("-")[0]: path for path in folder.glob(f"*-{name}.after")}
        found[name] = {number: read_round(folder, f"{number}-{name}", per_second) for number in rounds}
    measured = [name for name, _, _ in systems if found[name]]

    print("operations per second, median of the rounds (least to most)")
    rows = [["system", *PHASES.values(), "rounds"]]
    for name in measured:
        rates = [one["rates"] for one in found[name].values()]
        cells = [spread([rate[phase] for rate in rates], "{:,.0f}") for phase in PHASES]
        rows.append([name, *cells, str(len(rates))])
    table(rows)

    if "pando" in measured and len(measured) > 1:
        print("rate of pando / rate of the other: of the medians (least to most within one round)")
        rows = [["other", *PHASES.values()]]
        for name in measured:
            if name != "pando":
                rows.append([name, *(ratio(found["pando"], found[name], phase) for phase in PHASES)])
        table(rows)

    print("CPU seconds of server and client, all threads, for one mdtest with the making and removing of its tree")
    rows = [["system", "CPU s", "by process, median"]]
    for name in measured:
        rounds = found[name].values()
        commands = sorted({command for one in rounds for command in one["commands"]})
        parts = [f"{c} {statistics.median([one['commands'].get(c, 0.0) for one in rounds]):.2f}" for c in commands]
        rows.append([name, spread([one["cpu"] for one in rounds], "{:.2f}"), ", ".join(parts)])
    table(rows)

    served(folder, measured)
    print("what an answer promises, as run")
    for name, version, durability in systems:
        print(f"  {name} ({version}): {durability}")
        if not found[name]:
            print(f"  {name}: no round succeeded")


def served(folder, measured):
    """Of systems with several metadata servers: how many requests each was asked in each round."""
    for name in measured:
        for path in sorted(folder.glob(f"*-{name}.served")):
            servers = [line.split() for line in path.read_text().splitlines()]
            counts = ", ".join(f"{int(count):,} of mds.{server}" for server, count in servers)
            print(f"requests to {name} in round {path.name.split('-')[0]}: {counts}")


def ratio(ours, theirs, phase):
    """The ratio of the medians, with the range of the ratios of rounds that both finished."""
    middle = [statistics.median([one["rates"][phase] for one in side.values()]) for side in (ours, theirs)]
    both = [ours[n]["rates"][phase] / theirs[n]["rates"][phase] for n in ours if n in theirs]
    text = f"{middle[0] / middle[1]:.2f}"
    return text if len(both) < 2 else f"{text} ({min(both):.2f} to {max(both):.2f})"


main()
