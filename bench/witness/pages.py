"""Checks that the numbers on the first screen are correctly rounded."""

import collections
import re

import numpy as np

import victim as followed
import waits
from rows import UNREPORTED

OF_GAPS = ("unexplained", "hypervisor or firmware", "steal", "entry and exit")
# Names of activities for which the page shows another name.
SHOWN_AS = {"idle": "wake-up latency", UNREPORTED: "unknown thread"}
UNITS = {"ns": 1, "µs": 1e3, "ms": 1e6, "s": 1e9, "min": 60e9, "h": 3600e9}
TIME = r"[\d .]+? (?:ns|µs|ms|s|min|h)"


def near(text, value):
    """Returns whether a printed number equals this value after rounding."""
    number, unit = re.fullmatch(r"([\d .]+?) ?(ns|µs|ms|s|min|h|%)?", text.strip()).groups()
    number = number.replace(" ", "")
    step = 10.0 ** -len(number.partition(".")[2])
    return abs(float(number) - value / UNITS.get(unit, 1)) <= step * 0.500001


def tables(page):
    """Returns the lines of each table, by heading."""
    found, heading = collections.OrderedDict(), ""
    for line in page:
        first = re.match(r"([A-Z][A-Z -]{6,}[A-Z])(?:  |$)", line)
        if first and not line.startswith(" "):
            heading = first.group(1).strip()
        elif not line.startswith(" "):
            heading = ""
        elif heading:
            found.setdefault(heading, []).append(line)
    return found


def cells(line):
    """Splits a table line into its name and cells."""
    match = re.match(rf"  (.+?) {{2,}}({TIME}) +([<\d.]+ %) +([\d ]+?) {{2,}}({TIME})(?: {{2,}}(.*))?$", line)
    return match.groups() if match else None


def named(name):
    """Splits a printed name from its number of processes or PID."""
    many = re.match(r"(.*) x(\d+)$", name)
    one = re.match(r"(.*) \((\d+)\)$", name)
    if many:
        return many.group(1), int(many.group(2)), None
    return (one.group(1), 1, int(one.group(2))) if one else (name, None, None)


def check(rows, page, verdicts):
    for heading, lines in tables(page).items():
        sums = {"CPU TIME": programs, "WAITED BEHIND": behind, "RUN-QUEUE WAITS": waited,
                "KERNEL AND HYPERVISOR": kernel}.get(heading)
        if sums:
            table(rows, heading, lines, sums(rows), verdicts)
    if rows.header.get("victim"):
        wanted(rows, " ".join(page), verdicts)
    else:
        shares(rows, " ".join(page[:3]), verdicts)


def table(rows, heading, lines, found, verdicts):
    whole = found.pop("", None)
    if heading.startswith("RUN-QUEUE"):
        shares = [float(share) for line in lines for share in re.findall(r"([\d.]+) %", line)]
        verdicts.claim(heading, "shares add up to 100", True, abs(sum(shares) - 100) <= 0.06 * len(shares))
    for line in lines:
        parts = cells(line)
        if not parts:
            continue
        name, time, share, count, longest, _ = parts
        if re.fullmatch(r"\d+ others?", name):
            continue
        bare, many, pid = named(name)
        sums = found.get(bare)
        sentence = f"{heading}: {name}"
        if sums is None and bare in OF_GAPS and rows.header["probes"]:
            verdicts.open(heading, sentence, time, "gaps of the probe are in it")
            continue
        if sums is None:
            verdicts.claim(heading, f"{sentence} has rows", name, None)
            continue
        if many is not None:
            verdicts.claim(heading, f"{sentence} processes", many, len(sums["pids"]))
        if pid is not None:
            verdicts.claim(heading, f"{sentence} process", {pid}, sums["pids"])
        verdicts.claim(heading, f"{sentence} time {time}", True, near(time, sums["time"]))
        if not share.startswith("<"):
            verdicts.claim(heading, f"{sentence} share {share}", True, near(share, 100 * sums["time"] / whole))
        verdicts.claim(heading, f"{sentence} longest {longest}", True, near(longest, sums["longest"]))
    order = [sums["time"] for sums in sorted(found.values(), key=lambda sums: -sums["time"])]
    if order and lines and cells(lines[0]) and not (heading.startswith("KERNEL") and rows.header["probes"]):
        verdicts.claim(heading, "the first has most", True, near(cells(lines[0])[1], order[0]))


def entry():
    return {"time": 0, "longest": 0, "pids": set()}


def programs(rows):
    found = collections.defaultdict(entry)
    found[""] = sum(book["end_ns"] - book["begin_ns"] for book in rows.header["cpus"])
    for index in np.flatnonzero(rows.in_books & (rows.kind == "task") & (rows.owner == "program")):
        sums = found[str(rows.program[index])]
        sums["time"] += int(rows.self[index])
        sums["longest"] = max(sums["longest"], int(rows.max[index]))
        sums["pids"].add(int(rows.pid[index]))
    return dict(found)


def kernel(rows):
    found = collections.defaultdict(entry)
    found[""] = sum(book["end_ns"] - book["begin_ns"] for book in rows.header["cpus"])
    mine = rows.in_books & ((rows.kind == "irq") | (rows.kind == "softirq") | (rows.owner == "kernel") & (rows.kind == "task"))
    for index in np.flatnonzero(mine):
        name = str(rows.source[index])
        if rows.kind[index] == "softirq":
            name = f"softirq {name}"
        elif rows.kind[index] == "task":
            name = "unexplained" if name == UNREPORTED else name.split("/")[0]
        found[name]["time"] += int(rows.self[index])
        if rows.detail[index] == "" or rows.kind[index] == "task":
            found[name]["longest"] = max(found[name]["longest"], int(rows.max[index]))
    if rows.header["probes"]:
        found.pop("unexplained", None)  # includes gaps of the probe
    return dict(found)


def behind(rows):
    found, places = collections.defaultdict(entry), followed.Places(rows)
    found[""] = 0
    for index in np.flatnonzero(rows.kind == "wait"):
        pieces = []
        for state, begin, end in followed.waited(rows, index):
            if state == "waiting":
                found[""] += end - begin
                pieces += followed.behind_whom(rows, places, index, begin, end)[0]
        for other, lower, upper in pieces:
            name = rows.who(other)
            sums = found[SHOWN_AS.get(name, name)]
            sums["time"] += upper - lower
            sums["longest"] = max(sums["longest"], upper - lower)
            sums["pids"].add(int(rows.pid[other]))
    return dict(found)


def waited(rows):
    found, sessions = collections.defaultdict(entry), waits.Sessions(rows)
    for index, since, begin, cpu in waits.all_waits(rows, rows.events_lost() > 0):
        if waits.ran_during(rows, sessions, index, since, begin, cpu) is None:
            continue
        sums = found[rows.who(index)]
        sums["time"] += begin - since
        sums["longest"] = max(sums["longest"], begin - since)
        if rows.owner[index] == "program":
            sums["pids"].add(int(rows.pid[index]))
    found[""] = sum(sums["time"] for sums in found.values())
    return dict(found)


def shares(rows, text, verdicts):
    whole = sum(book["end_ns"] - book["begin_ns"] for book in rows.header["cpus"])
    of = {
        "programs": rows.in_books & (rows.owner == "program"),
        "idle": rows.in_books & ((rows.kind == "idle") | (rows.owner == "probe")),
    }
    for name, mine in of.items():
        match = re.search(rf"([\d.]+ %) {name}", text)
        if match and not (name == "idle" and rows.header["probes"]):
            verdicts.claim("verdict", f"{name} {match.group(1)}", True, near(match.group(1), 100 * int(rows.self[mine].sum()) / whole))


def wanted(rows, text, verdicts):
    parts = [part for index in np.flatnonzero(rows.kind == "wait") for part in followed.waited(rows, index)]
    waiting = [end - begin for state, begin, end in parts if state == "waiting"]
    match = re.search(rf"WAITED ({TIME}) \(", text)
    if match and len(waiting):
        verdicts.claim("verdict", f"waited {match.group(1)}", True, near(match.group(1), sum(waiting)))
    match = re.search(rf"WAITED [^,]*, max ({TIME})", text)
    if match and len(waiting):
        verdicts.claim("verdict", f"longest wait {match.group(1)}", True, near(match.group(1), max(waiting)))
