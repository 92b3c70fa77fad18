"""Checks the balance, the accounts, the CPUs and the counters."""

import collections

import numpy as np

from rows import UNREPORTED

# Classes whose time is taken from the probe when gaps are analysed. Stolen time has no rows either.
MOVED = {"probe", "entry_exit", "hypervisor_or_firmware", "unexplained", "steal"}


def account(rows, index):
    """Returns the account of a row: class, name and process."""
    kind, owner = rows.kind[index], rows.owner[index]
    if kind != "task":
        return str(kind), "" if kind == "idle" else str(rows.source[index]), None
    if rows.source[index] == UNREPORTED:
        return "unexplained", UNREPORTED, None
    if owner == "program":
        return "program", str(rows.program[index]), int(rows.pid[index])
    if owner == "kernel":
        return "kernel_thread", rows.source[index].split("/")[0], None
    return {"tool": "tool", "probe": "probe"}[owner], "", None


def check(rows, said, verdicts):
    claim = verdicts.claim
    if rows.header["level"] != "kernel":
        verdicts.open("books", "all accounts", None, "without root they are the kernel's counters, not rows")
        return
    elapsed, booked = 0, 0
    for book in rows.header["cpus"]:
        own = int(rows.self[rows.in_books & (rows.cpu == book["cpu"])].sum()) + rows.lost_ns(book["cpu"])
        claim("books", f"CPU {book['cpu']} balances", book["end_ns"] - book["begin_ns"], own)
        elapsed += book["end_ns"] - book["begin_ns"]
        booked += own
    claim("books", "elapsed", said["balance"]["elapsed_ns"], elapsed)
    claim("books", "accounted for", said["balance"]["accounted_ns"], booked)
    claim("books", "who is off", said["balance"]["imbalances_ns"], [])
    claim("books", "accounts add up", sum(a["time_ns"] for a in said["accounts"]), booked)
    accounts(rows, said, verdicts)
    cpus(rows, said, verdicts)
    counters(rows, said, verdicts)
    limitations(rows, said, verdicts)


def accounts(rows, said, verdicts):
    found = collections.defaultdict(list)
    for index in np.flatnonzero(rows.in_books):
        found[account(rows, index)].append(index)
    told = {(a["class"], "" if a["class"] in ("tool", "probe", "idle") else a["name"], a["pid"]): a
            for a in said["accounts"]}
    moved = sum(rows.lost_ns(book["cpu"]) for book in rows.header["cpus"])
    for key, indices in found.items():
        indices = np.array(indices)
        own = int(rows.self[indices].sum())
        if key[0] in MOVED:
            moved += own
            continue
        name = " ".join(str(part) for part in key if part)
        told_here = told.pop(key, None)
        if told_here is None:
            verdicts.claim("accounts", f"{name} is told", None, own)
            continue
        verdicts.claim("accounts", f"{name} time", told_here["time_ns"], own)
        frames = indices if key[0] not in ("irq", "softirq", "nmi") else indices[rows.detail[indices] == ""]
        verdicts.claim("accounts", f"{name} count", told_here["count"], int(rows.count[frames].sum()))
        if len(frames):
            verdicts.claim("accounts", f"{name} longest", told_here["max_ns"], int(rows.max[frames].max()))
        if not rows.sums and len(frames):
            lengths = rows.dur[frames]
            for quantile, value in (("median_ns", 0.5), ("p99_ns", 0.99)):
                if told_here[quantile] is not None:
                    exact = float(np.quantile(lengths, value, method="inverted_cdf"))
                    verdicts.share("accounts", f"{name} {quantile}", told_here[quantile], exact, 0.2)
            verdicts.claim("accounts", f"{name} has a p99", told_here["p99_ns"] is not None, len(frames) >= 299)
        parts(rows, key, indices, told_here, verdicts)
    left = [a for key, a in told.items() if key[0] in MOVED]
    for moved_to in (a for a in left if not rows.sums and a["class"] in ("hypervisor_or_firmware", "unexplained")):
        verdicts.claim("accounts", f"{moved_to['name']}: its longest is no longer than it", True,
                       (moved_to["max_ns"] or 0) <= moved_to["time_ns"])
    verdicts.claim("accounts", "probe, entry and exit, outside, unexplained: in all", sum(a["time_ns"] for a in left), moved)
    for key in [key for key in told if key[0] not in MOVED and told[key]["time_ns"]]:
        verdicts.claim("accounts", f"{key} has rows", told[key]["time_ns"], 0)


def parts(rows, key, indices, told, verdicts):
    for part in told["parts"]:
        if key[0] in ("irq", "softirq", "nmi"):
            mine = indices[rows.detail[indices] == part["name"]]
        else:
            name = np.where(rows.detail[indices] != "", rows.detail[indices], rows.source[indices])
            mine = indices[name == part["name"]]
        sentence = f"{key} {part['name']}"
        verdicts.claim("accounts", f"{sentence} time", part["time_ns"], int(rows.self[mine].sum()))
        verdicts.claim("accounts", f"{sentence} count", part["count"], int(rows.count[mine].sum()))
        verdicts.claim("accounts", f"{sentence} longest", part["max_ns"], int(rows.max[mine].max(initial=0)))


def cpus(rows, said, verdicts):
    for cpu in said["cpus"]:
        here = np.flatnonzero(rows.in_books & (rows.cpu == cpu["cpu"]))
        by_class = collections.Counter()
        for index in here:
            by_class[account(rows, index)[0]] += int(rows.self[index])
        told = collections.Counter({c["class"]: c["time_ns"] for c in cpu["classes"]})
        for name in set(by_class) | set(told):
            if name not in MOVED:
                verdicts.claim("cpus", f"CPU {cpu['cpu']} {name}", told[name], by_class[name])
        by_class["unexplained"] += rows.lost_ns(cpu["cpu"])
        all_moved = [sum(times[name] for name in MOVED) for times in (told, by_class)]
        verdicts.claim("cpus", f"CPU {cpu['cpu']} probe, around and outside", *all_moved)


def counters(rows, said, verdicts):
    before, after = rows.header["before"], rows.header["after"]
    for name, pressure in said["pressure"].items():
        for part in ("some_ns", "full_ns"):
            grew = after["pressure"][name][part] - before["pressure"][name][part]
            verdicts.claim("counters", f"pressure {name} {part}", pressure[part], grew)
    if said.get("run_queue"):
        mean = said["run_queue"]["threads"] / said["run_queue"]["samples"]
        verdicts.claim("counters", "some are runnable", mean <= said["run_queue"]["max"], True)
    stolen = (said.get("victim") or {}).get("stolen_ns")
    if stolen is not None:
        grew = sum(times["steal_ns"] - before["cpu_times"][cpu]["steal_ns"] for cpu, times in after["cpu_times"].items())
        verdicts.claim("counters", "steal of all CPUs", stolen, grew)
    verdicts.open("counters", "cost of observing, attaching, memory", said["cost"]["cpu_time_ns"], "in no row")
    own = int(rows.self[rows.in_books & (rows.owner == "tool")].sum())
    verdicts.claim("counters", "ticktax' rows are no more than its cost", True, own <= said["cost"]["cpu_time_ns"] * 1.05)


def limitations(rows, said, verdicts):
    claim = verdicts.claim
    unreported = rows.in_books & (rows.source == UNREPORTED)
    before, after = rows.header["before"]["programs"], rows.header["after"]["programs"]
    for limit in said["coverage"]["limitations"]:
        kind = limit["id"]
        if kind == "switches-missed" and rows.events_lost():
            verdicts.open("limits", kind, limit["count"], "events were lost")
        elif kind == "switches-missed":
            claim("limits", "stretches of unreported threads", limit["count"], int(rows.count[unreported].sum()))
        elif kind == "switches-unreported":
            switches = rows.header["cross_checks"]["switches"]
            claim("limits", "switches counted and not reported", limit["count"],
                  switches["counted"] - switches["reported"] - switches.get("margin", 0))
            claim("limits", "as many as there are stretches, at least", limit["count"] >= int(rows.count[unreported].sum()) * 0.9, True)
        elif kind in ("process-not-traced", "process-partly-traced"):
            pid = str(limit["pid"])
            ran = after[pid]["on_cpu_ns"] - before.get(pid, {"on_cpu_ns": 0})["on_cpu_ns"]
            mine = rows.in_books & (rows.kind == "task") & (rows.pid == limit["pid"])
            claim("limits", f"{limit['name']} ran", limit["ran_ns"], ran)
            if kind == "process-not-traced":
                claim("limits", f"{limit['name']} has no row", 0, int(mine.sum()))
                claim("limits", f"{limit['name']} fits into unreported time", True,
                      limit["ran_ns"] <= int(rows.self[unreported].sum()) * 1.1)
            else:
                missing = ran - int(rows.dur[mine].sum())
                claim("limits", f"{limit['name']} is missing", limit["missing_ns"], missing)
                claim("limits", f"{limit['name']} is missing switches, not only what is charged from wake-ups on",
                      True, missing > charged_from_wakeups(rows, limit["pid"]))
        elif kind == "length-differs":
            watched = max(book["end_ns"] - book["begin_ns"] for book in rows.header["cpus"])
            claim("limits", "watched for", limit["watched_ns"], watched)
        else:
            verdicts.open("limits", kind, {k: v for k, v in limit.items() if k != "id"}, "of the tracer, not of rows")


def charged_from_wakeups(rows, pid):
    """Returns the maximum time that the scheduler may charge a process for switching to it after a wake-up."""
    wakes, total = rows.wakes(), 0
    mine = np.flatnonzero(rows.in_books & (rows.kind == "task") & (rows.pid == pid))
    for tid in np.unique(rows.tid[mine]):
        runs = mine[rows.tid[mine] == tid]
        runs = runs[np.argsort(rows.start[runs])]
        times = rows.start[wakes.get(int(tid), np.array([], int))]
        left = 0
        for run in runs:
            last = np.searchsorted(times, rows.start[run], side="right") - 1
            if last >= 0 and times[last] >= left and rows.start[run] - times[last] < 200_000:
                total += int(rows.start[run] - times[last])
            left = rows.end[run]
    return total
