"""Checks the run-queue waits of all threads: from a wake-up or a preemption until the thread runs."""

import collections

import numpy as np

from rows import UNREPORTED

IDLING = 1_000_000
OTHERS = 5


class Sessions:
    """The scheduler's session groups (autogroups). Threads of other sessions can wait behind the probe."""

    def __init__(self, rows):
        self.groups = {group["pid"]: group["number"] for group in rows.header.get("autogroups") or ()}
        probes = rows.pid[np.flatnonzero(rows.owner == "probe")]
        self.probe = self.groups.get(int(probes[0])) if len(probes) else None

    def differ(self, rows, index):
        if self.probe is None:
            return False
        if rows.owner[index] == "kernel":
            return True
        return self.groups.get(int(rows.pid[index]), self.probe) != self.probe


def ran_during(rows, sessions, index, since, begin, cpu):
    """Returns how long each thread ran while this row's thread waited, or None if it did not wait."""
    ran, probe, idle = collections.Counter(), collections.Counter(), 0
    for other, lower, upper in rows.pieces(cpu, since, begin):
        if rows.kind[other] == "idle":
            idle += upper - lower
        else:
            (probe if rows.owner[other] == "probe" else ran)[other] += upper - lower
    had, others = sum(probe.values()), sum(ran.values())
    if idle + had <= IDLING and others:
        return ran
    woken = rows.woken[int(index)]
    if idle <= IDLING < had and (woken or others * OTHERS >= had) and sessions.differ(rows, index):
        return ran + probe
    return None


def stretches(rows):
    """Returns each thread's uninterrupted on-CPU periods: (start, end, cpu, first row)."""
    found = np.flatnonzero(rows.in_books & (rows.kind == "task") & (rows.tid >= 0) & (rows.count == 1))
    found = found[np.lexsort((rows.start[found], rows.tid[found]))]
    by_thread = collections.defaultdict(list)
    for index in found:
        mine = by_thread[int(rows.tid[index])]
        if mine and mine[-1][1] == rows.start[index] and mine[-1][2] == rows.cpu[index]:
            mine[-1][1] = int(rows.end[index])
        else:
            mine.append([int(rows.start[index]), int(rows.end[index]), int(rows.cpu[index]), index])
    return by_thread


def all_waits(rows, lost):
    """Returns each wait as (thread's row, start, end, cpu), and notes in `rows.woken` if a wake-up started it."""
    wakes, rows.woken = rows.wakes(), {}
    unreported = np.flatnonzero(rows.in_books & (rows.source == UNREPORTED))
    after_idle = set()
    for cpu in np.unique(rows.cpu):
        line = rows.line(cpu)
        follows = (rows.kind[line[:-1]] == "idle") & (rows.end[line[:-1]] == rows.start[line[1:]])
        after_idle.update(line[1:][follows].tolist())
    for tid, runs in stretches(rows).items():
        times = rows.start[wakes.get(tid, np.array([], int))]
        left = None
        for begin, end, cpu, index in runs:
            before, left = left, end
            if rows.owner[index] in ("tool", "probe") or int(index) in after_idle:
                continue
            last = np.searchsorted(times, begin, side="right") - 1
            rows.woken[int(index)] = bool(last >= 0 and (before is None or times[last] > before))
            if rows.woken[int(index)]:
                since = int(times[last])
            elif before is not None and before < begin and not lost:
                since = before
            else:
                continue
            if ((rows.start[unreported] < begin) & (rows.end[unreported] > since)).any():
                continue
            yield index, since, begin, cpu


def check(rows, said, verdicts):
    told = said.get("waits")
    if not told:
        return
    lost = rows.events_lost() > 0
    waiters = collections.defaultdict(lambda: [0, 0, 0, 0])
    behind = collections.defaultdict(collections.Counter)
    by_process = collections.Counter()
    sessions = Sessions(rows)
    for index, since, begin, cpu in all_waits(rows, lost):
        ran = ran_during(rows, sessions, index, since, begin, cpu)
        if ran is None:
            continue
        name = rows.who(index)
        sums = waiters[name]
        sums[0] += begin - since
        sums[1] += 1
        if begin - since > sums[2]:
            sums[2:] = [begin - since, since - rows.begin]
        for other, time in ran.items():
            behind[name][rows.who(other)] += time
            by_process[rows.who(other), process(rows, other)] += time
    claim = verdicts.claim
    claim("waits", "time of all", told["time_ns"], sum(sums[0] for sums in waiters.values()))
    claim("waits", "times of all", told["count"], sum(sums[1] for sums in waiters.values()))
    claim("waits", "programs", len(told["programs"]) + told["programs_left_out"], len(waiters))
    for waiter in told["programs"]:
        name = waiter["name"]
        for key, found in zip(("time_ns", "count", "max_ns", "max_at_ns"), waiters[name]):
            claim("waits", f"{name} {key}", waiter[key], found)
        for other in waiter["behind"]:
            found = behind[name][other["name"]]
            claim("waits", f"{name} behind {other['name']}", other["time_ns"], found)
        if waiter["behind"]:
            most = behind[name].most_common(1)[0][1]
            claim("waits", f"{name}: the first had most", waiter["behind"][0]["time_ns"], most)
    for other in told["behind"]:
        pid = other["pids"][0] if other["pids"] else None
        claim("waits", f"all behind {other['name']} {pid}", other["time_ns"], by_process[other["name"], pid])
    overbooked(rows, said, {name: sums[0] for name, sums in waiters.items()}, verdicts)


def process(rows, index):
    """Returns the process of a program's row. Kernel threads and ticktax's own are identified by name only."""
    return int(rows.pid[index]) if rows.owner[index] == "program" else None


def overbooked(rows, said, waited, verdicts):
    """Checks the CPU time that threads wanted: run time plus run-queue wait."""
    for told in said["advice"]:
        if told["id"] != "cpus-oversubscribed":
            continue
        elapsed = sum(book["end_ns"] - book["begin_ns"] for book in rows.header["cpus"])
        busy = int(rows.self[rows.in_books & (rows.kind != "idle") & (rows.owner != "probe")].sum())
        wanted = (busy + sum(waited.values())) / elapsed * len(rows.header["cpus"])
        verdicts.claim("waits", "overbooked: CPUs wanted", told["demand_cores"], wanted, 0.02 * wanted)
        ran = collections.Counter()
        for index in np.flatnonzero(rows.in_books & (rows.kind == "task") & (rows.owner == "program")):
            ran[str(rows.program[index])] += int(rows.self[index])
        most = max(ran, key=lambda name: ran[name] + waited.get(name, 0))
        verdicts.claim("waits", "overbooked: by whom most", told["program"], most)
        verdicts.share("waits", "overbooked: what that wanted", told["time_ns"], ran[most] + waited.get(most, 0), 0.002)
