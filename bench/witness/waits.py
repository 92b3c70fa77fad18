"""Who waited for a CPU, of a machine's threads: from a wake-up, or from losing the CPU, until a thread has one."""

import collections

import numpy as np

from rows import UNREPORTED

IDLING = 1_000_000


def stretches(rows):
    """By thread: the stretches on a CPU (begin, end, cpu, first row), each as long as nothing was between."""
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
    """(thread's row, begin, end, cpu) of each wait."""
    wakes = rows.wakes()
    unreported = np.flatnonzero(rows.in_books & (rows.source == UNREPORTED))
    after_idle = set()
    for cpu in np.unique(rows.cpu):
        line = rows.line(cpu)
        follows = (rows.kind[line[:-1]] == "idle") & (rows.end[line[:-1]] == rows.start[line[1:]])
        after_idle.update(line[1:][follows].tolist())
    first = rows.start[np.flatnonzero(rows.edge == "woke")].min(initial=np.iinfo(np.int64).max)
    for tid, runs in stretches(rows).items():
        times = rows.start[wakes.get(tid, np.array([], int))]
        left = None
        for begin, end, cpu, index in runs:
            if end < first:  # whether a thread that ran before was woken is not known
                continue
            before, left = left, end
            if rows.owner[index] in ("tool", "probe") or int(index) in after_idle:
                continue
            last = np.searchsorted(times, begin, side="right") - 1
            if last >= 0 and (before is None or times[last] > before):
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
    lost = bool(rows.header["coverage"]["lost"])
    waiters = collections.defaultdict(lambda: [0, 0, 0, 0])
    behind = collections.defaultdict(collections.Counter)
    by_process = collections.Counter()
    for index, since, begin, cpu in all_waits(rows, lost):
        ran, idle, seen = collections.Counter(), 0, 0
        for other, lower, upper in rows.pieces(cpu, since, begin):
            seen += upper - lower
            if rows.kind[other] == "idle" or rows.owner[other] == "probe":
                idle += upper - lower
            else:
                ran[other] += upper - lower
        if idle > IDLING or seen == idle:
            continue
        name = program(rows, index)
        sums = waiters[name]
        sums[0] += begin - since
        sums[1] += 1
        if begin - since > sums[2]:
            sums[2:] = [begin - since, since - rows.begin]
        for other, time in ran.items():
            behind[name][program(rows, other)] += time
            by_process[program(rows, other), int(rows.pid[other])] += time
    claim = verdicts.claim
    # Whether a wait of the first ms is told depends on whether an edge of another CPU was written before it.
    verdicts.share("waits", "time of all", told["time_ns"], sum(sums[0] for sums in waiters.values()), 0.001)
    claim("waits", "times of all", told["count"], sum(sums[1] for sums in waiters.values()), 3)
    claim("waits", "programs", len(told["programs"]) + told["programs_left_out"], len(waiters))
    for waiter in told["programs"]:
        name = waiter["name"]
        for key, found in zip(("time_ns", "count", "max_ns", "max_at_ns"), waiters[name]):
            claim("waits", f"{name} {key}", waiter[key], found, 3 if key == "count" else 0.002 * found)
        for other in waiter["behind"]:
            found = behind[name][other["name"]]
            claim("waits", f"{name} behind {other['name']}", other["time_ns"], found, 0.002 * found)
        if waiter["behind"]:
            most = behind[name].most_common(1)[0][1]
            claim("waits", f"{name}: the first had most", waiter["behind"][0]["time_ns"], most, 0.002 * most)
    for other in told["behind"]:
        pid = other["pids"][0] if other["pids"] else None
        found = sum(time for (name, of), time in by_process.items() if name == other["name"] and (pid is None or of == pid))
        claim("waits", f"all behind {other['name']} {pid}", other["time_ns"], found, 0.002 * found)


def program(rows, index):
    if rows.owner[index] == "program":
        return str(rows.program[index])
    return "ticktax" if rows.owner[index] == "tool" else str(rows.source[index])
