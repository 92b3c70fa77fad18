"""Checks waits of real-time threads during which no thread of a higher priority ran."""

import collections

import numpy as np

import waits


def check(rows, said, verdicts):
    files = rows.header["machine"]["configured"]["files"]
    told = (said.get("victim") or {}).get("threads") or said.get("waits") or {}
    told = told.get("real_time", [])
    if rows.sums or "proc/sys/kernel/sched_rt_period_us" not in files:
        return
    tids = {thread["tid"] for thread in rows.header["policies"] if thread["policy"].startswith(("FIFO", "RR"))}
    runtime, period = (int(files[f"proc/sys/kernel/sched_rt_{name}_us"]) * 1000 for name in ("runtime", "period"))
    if not 0 < runtime < period:
        runtime, period = 950_000_000, 1_000_000_000
    found = collections.defaultdict(list)
    for index, begin, end in candidates(rows, said, tids):
        if not 1_000_000 <= end - begin <= (period - runtime) * 1.5 + 10_000_000:
            continue
        cpu = rows.cpu[index]
        meanwhile = {int(rows.tid[other]) for other, lower, upper in rows.pieces(cpu, begin, end)}
        ran = sum(upper - lower for other, lower, upper in rows.pieces(cpu, end - period, end) if int(rows.tid[other]) in tids)
        if not meanwhile & tids and ran >= 0.97 * runtime:
            found[str(rows.program[index])].append(end - begin)
    claim = verdicts.claim
    claim("real time", "programs", sorted({held["name"] for held in told}), sorted(found))
    for name, lengths in found.items():
        held = [held for held in told if held["name"] == name]
        claim("real time", f"{name} time", sum(one["time_ns"] for one in held), sum(lengths))
        claim("real time", f"{name} how often", sum(one["count"] for one in held), len(lengths))
        claim("real time", f"{name} longest", max((one["max_ns"] for one in held), default=0), max(lengths))
    if told:
        verdicts.open("real time", "whether it was throttling or the fair server", told[0]["limit"], "by the kernel's version and build")


def candidates(rows, said, tids):
    """Yields (row, start, end) for each wait of a real-time thread."""
    if said.get("victim"):
        waited = np.isin(rows.detail, ("woken", "preempted")) & (rows.kind == "wait") & np.isin(rows.tid, list(tids))
        yield from ((index, int(rows.start[index]), int(rows.end[index])) for index in np.flatnonzero(waited))
        return
    if rows.events_lost():
        return
    wakes = rows.wakes()
    for tid, runs in waits.stretches(rows).items():
        if tid not in tids:
            continue
        times = rows.start[wakes.get(tid, np.array([], int))]
        for (_, left, _, _), (begin, _, _, index) in zip(runs, runs[1:]):
            last = np.searchsorted(times, begin, side="right") - 1
            yield index, int(times[last]) if last >= 0 and times[last] > left else left, begin
