"""Checks top's figures against the trace, the tick's samples, and the cost of the tick."""

import numpy as np

from rows import UNREPORTED

TICKS = ("tick_nohz_handler", "tick_sched_timer")


def ticks_of(rows, cpu):
    found = np.flatnonzero(rows.single & (rows.kind == "irq") & (rows.cpu == cpu) & np.isin(rows.detail, TICKS))
    return found[np.argsort(rows.start[found])]


def check(rows, said, verdicts):
    if rows.header["level"] != "kernel" or rows.sums:
        return
    if rows.events_lost():
        verdicts.open("tick", "ticks, and what top shows", None, "events were lost, ticks among them")
        return
    if said.get("tick"):
        tick(rows, said["tick"], verdicts)
    if said.get("accounting"):
        # Rows charge kernel entry and exit to the probe.
        sides = [said["gaps"][side] for side in ("long", "short", "yielded")] if said.get("gaps") else []
        shown(rows, said["accounting"], sum(side["entry_exit_ns"] for side in sides), verdicts)


def besides(rows, cpu):
    """Returns how many timer interrupts the kernel may have counted outside the accounting interval of `cpu`."""
    book = next(book for book in rows.header["cpus"] if book["cpu"] == cpu)
    before, after = rows.header["before"], rows.header["after"]
    read = max(after["at_ns"], after.get("programs_read_ns") or 0)
    time = max(book["begin_ns"] - before["at_ns"], 0) + max(read - book["end_ns"], 0)
    irqs = rows.single & (rows.kind == "irq") & (rows.detail == "") & (rows.source == "local_timer") & (rows.cpu == cpu)
    rate = int(irqs.sum()) / (book["end_ns"] - book["begin_ns"])
    return round(rate * time)


def tick(rows, told, verdicts):
    lengths = []
    for cpu in told["cpus"]:
        ticks = ticks_of(rows, cpu["cpu"])
        name = f"CPU {cpu['cpu']}"
        irqs = np.flatnonzero(rows.single & (rows.kind == "irq") & (rows.detail == "") & (rows.source == "local_timer") & (rows.cpu == cpu["cpu"]))
        loc = [rows.header[at]["interrupts"]["LOC"]["counts"][str(cpu["cpu"])] for at in ("before", "after")]
        verdicts.claim("tick", f"{name} interrupts of the timer, by the kernel", cpu["interrupts"], loc[1] - loc[0])
        # An interrupt at either end of the interval may be counted before it and recorded after it,
        # or the reverse.
        least, most = len(irqs) * 0.97 - 2, (len(irqs) + besides(rows, cpu["cpu"])) * 1.03
        verdicts.claim("tick", f"{name} interrupts of the timer, {cpu['interrupts']}, are {least:.0f} to {most:.0f} by the rows", True,
                       least <= cpu["interrupts"] <= most)
        irqs = irqs[np.argsort(rows.start[irqs])]
        place = np.searchsorted(rows.start[irqs], rows.start[ticks], side="right") - 1
        # A delayed interrupt may contain two ticks but is billed once.
        billed, which = np.unique(place, return_inverse=True)
        lengths.append(np.bincount(which, rows.self[ticks], len(billed)) + rows.self[irqs[billed]])
        verdicts.claim("tick", f"{name} ticks", cpu["all"]["count"], len(billed))
        line = rows.line(cpu["cpu"])
        idle = line[rows.kind[line] == "idle"]
        if cpu["frequency"] and len(ticks) > 2:
            begins = rows.start[ticks]
            without = np.searchsorted(rows.start[idle], begins[1:]) == np.searchsorted(rows.start[idle], begins[:-1])
            covers = np.searchsorted(rows.end[idle], begins[:-1], side="right") == np.searchsorted(rows.start[idle], begins[:-1], side="right")
            intervals = np.diff(begins)[without & covers]
            if len(intervals):
                verdicts.share("tick", f"{name} frequency", cpu["frequency"]["rate_hz"], 1e9 / intervals.mean(), 0.001)
                verdicts.share("tick", f"{name} intervals", cpu["frequency"]["intervals"], len(intervals), 0.002)
    cost, lengths = told["cost"], np.concatenate(lengths) if lengths else np.array([])
    if not cost or not len(lengths):
        return
    verdicts.claim("tick", "ticks billed", cost["count"], len(lengths), 4)
    for key, q in (("median_ns", 0.5), ("p99_ns", 0.99)):
        if cost[key] is not None:
            verdicts.share("tick", key, cost[key], float(np.quantile(lengths, q, method="inverted_cdf")), 0.2)
    verdicts.claim("tick", "at most", cost["max_ns"], int(lengths.max()))
    within = sum(part["time_ns"] for part in cost["parts"])
    verdicts.share("tick", "the interrupt and the function", within, int(lengths.sum()), 0.001)
    softirqs = sum(part["time_ns"] for part in cost["softirqs"])
    elapsed = sum(book["end_ns"] - book["begin_ns"] for book in rows.header["cpus"])
    wall = elapsed / len(rows.header["cpus"])
    verdicts.share("tick", "CPUs' time", cost["cores"]["value"], (within + softirqs) / wall, 0.002)
    for part in cost["softirqs"]:
        whole = int(rows.self[rows.single & (rows.kind == "softirq") & (rows.source == part["name"].split(" ")[0])].sum())
        verdicts.claim("tick", f"softirq {part['name']} took no more than in all", True, part["time_ns"] <= whole)


def shown(rows, told, around, verdicts):
    before, after = rows.header["before"]["cpu_times"], rows.header["after"]["cpu_times"]
    for cpu in told["cpus"]:
        name, number = f"CPU {cpu['cpu']}", str(cpu["cpu"])
        grew = {key: after[number][key] - before[number][key] for key in after[number]}
        verdicts.claim("top", f"{name} columns", cpu["columns"], {key: grew.get(key, 0) for key in cpu["columns"]})
        here = rows.in_books & (rows.cpu == cpu["cpu"])
        idle = here & ((rows.kind == "idle") | (rows.owner == "probe"))
        unknown = here & ((rows.source == UNREPORTED) | (rows.kind == "steal"))
        busy = int(rows.self[here & ~idle & ~unknown].sum())
        verdicts.claim("top", f"{name} traced", cpu["busy_ns"], busy, 0.01 * busy + around)
        ticks = ticks_of(rows, cpu["cpu"])
        verdicts.claim("top", f"{name} ticks", cpu["ticks"], len(ticks))
        for cause in cpu["causes"]:
            if cause["kind"] == "ticks_lost":
                grid = told["config"]["tick_ns"]
                watched = next(b["end_ns"] - b["begin_ns"] for b in rows.header["cpus"] if b["cpu"] == cpu["cpu"])
                lost = watched / grid - len(ticks)
                # The kernel may charge a tick that it does not report. The columns reveal it, in
                # steps of 10 ms.
                short = cpu["stat_elapsed_ns"] - sum(cpu["columns"].values())
                verdicts.claim("top", f"{name} lost ticks are missing from the columns, in ms", True, cause["ran_ns"] <= short + 20e6)
                lost = lost if lost * grid <= short + 20e6 else max(short, 0) / grid
                if not (rows.single & (rows.kind == "idle") & (rows.cpu == cpu["cpu"])).any():
                    verdicts.claim("top", f"{name} lost ticks, in ms", cause["time_ns"] / 1e6, -lost * grid / 1e6, 2 * grid / 1e6 + 0.2 * lost * grid / 1e6)
            else:
                verdicts.open("top", f"{name} {cause['kind']}", cause["time_ns"], "which tick met whom is checked by program")
    samples(rows, told, verdicts)


def samples(rows, told, verdicts):
    tick_ns, found = told["config"]["tick_ns"], {}
    for cpu in told["cpus"]:
        line = rows.line(cpu["cpu"])
        ticks = ticks_of(rows, cpu["cpu"])
        place = np.searchsorted(rows.start[line], rows.start[ticks], side="right") - 1
        for index in line[place[place >= 0]]:
            found[int(rows.pid[index])] = found.get(int(rows.pid[index]), 0) + tick_ns
    programs = rows.header["before"]["programs"], rows.header["after"]["programs"]
    for program in told["programs"]:
        pid = program["pid"]
        mine = rows.in_books & (rows.kind == "task") & (rows.pid == pid)
        name = f"{program['name']} ({pid})"
        verdicts.claim("top", f"{name} ran", program["ran_ns"] or 0, int(rows.self[mine].sum()))
        if program["sampled_ns"] is not None:
            verdicts.claim("top", f"{name} by samples", program["sampled_ns"], found.get(pid, 0))
        if program["shown_ns"] is not None and str(pid) in programs[1]:
            grew = programs[1][str(pid)]["time_ns"] - programs[0].get(str(pid), {"time_ns": 0})["time_ns"]
            verdicts.claim("top", f"{name} by /proc", program["shown_ns"], grew)
        if program["on_cpu_ns"] is not None:
            verdicts.claim("top", f"{name} on a CPU", program["on_cpu_ns"], int(rows.dur[mine].sum()))
