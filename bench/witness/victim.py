"""What happened to the threads of a program that was followed."""

import collections

import numpy as np

WAITING = ("woken", "preempted", "yielded", "unthrottled")
MOVED = ", moved"
QUOTA = ("sched_cfs_period_timer", "sched_cfs_slack_timer")


def check(rows, said, verdicts):
    victim = said.get("victim")
    if not victim or rows.sums:
        return
    threads, claim = victim["threads"], verdicts.claim
    waits = np.flatnonzero((rows.kind == "wait") & (rows.owner == "program"))
    tids = set(rows.tid[waits].tolist())
    runs = np.flatnonzero(rows.in_books & (rows.kind == "task") & np.isin(rows.tid, list(tids)))
    since = rows.header["victim"]["begin_ns"]
    runs = runs[rows.start[runs] >= since]
    claim("victim", "threads", threads["threads"], len(tids))
    states = collections.defaultdict(list)
    for index in waits:
        for name, begin, end in waited(rows, index):
            states[name].append(end - begin)
    for account in threads["accounts"]:
        name = account["state"]
        if name == "running":
            claim("victim", "running", account["time_ns"], int(rows.self[runs].sum()))
            claim("victim", "ran how often", account["count"], len(runs))
        elif name == "interrupted":
            claim("victim", "interrupted", account["time_ns"], int((rows.dur - rows.self)[runs].sum()))
        elif name in states:
            claim("victim", f"{name} time", account["time_ns"], sum(states[name]))
            claim("victim", f"{name} longest", account["max_ns"], max(states[name]))
        else:
            verdicts.open("victim", name, account["time_ns"], "no row of this state")
    claim("victim", "accounts add up", sum(a["time_ns"] for a in threads["accounts"]), threads["accounted_ns"])
    woken = rows.dur[waits[np.isin(rows.detail[waits], ("woken", "woken" + MOVED))]]
    latency = threads["latency"]
    if latency and len(woken):
        claim("victim", "wake-ups", latency["count"], len(woken))
        claim("victim", "longest wake-up", latency["max_ns"], int(woken.max()))
        for key, q in (("median_ns", 0.5), ("p99_ns", 0.99)):
            if latency[key] is not None:
                verdicts.share("victim", f"wake-up {key}", latency[key], float(np.quantile(woken, q, method="inverted_cdf")), 0.2)
        claim("victim", "has a p99", latency["p99_ns"] is not None, len(woken) >= 299)
    cpus = [rows.cpu[mine[np.argsort(rows.start[mine])]] for mine in (runs[rows.tid[runs] == tid] for tid in tids)]
    claim("victim", "migrations", threads["migrations"], int(sum((np.diff(mine) != 0).sum() for mine in cpus)))
    behind(rows, threads, waits, verdicts)
    interrupted(rows, threads, runs, verdicts)
    delays(rows, threads, waits, runs, verdicts)
    usage(rows, victim, verdicts)
    frames(rows, victim, verdicts)


def state(detail):
    detail = detail.removesuffix(MOVED)
    return "waiting" if detail in WAITING else {"missed": "unseen"}.get(detail, detail)


def waited(rows, index):
    """A wait's parts: one for the quota ends with the timer that refills it, and is one for a CPU from there on."""
    name, begin, end = state(str(rows.detail[index])), int(rows.start[index]), int(rows.end[index])
    if name == "throttled":
        refills = np.flatnonzero(np.isin(rows.detail, QUOTA) & (rows.kind == "irq") & (rows.end > begin) & (rows.end < end))
        if len(refills):
            refilled = int(rows.end[refills].max())
            return [(name, begin, refilled), ("waiting", refilled, end)]
    return [(name, begin, end)]


def behind(rows, threads, waits, verdicts):
    ran, times, longest = collections.Counter(), collections.Counter(), collections.Counter()
    for index in waits:
        for name, begin, end in waited(rows, index):
            for other, lower, upper in rows.beneath(rows.cpu[index], begin, end) if name == "waiting" else ():
                if rows.tid[other] != rows.tid[index]:
                    own = {"tool": "ticktax", "probe": "ticktax's probe"}.get(str(rows.owner[other]))
                    key = own or rows.name(other), int(rows.pid[other]) if rows.owner[other] == "program" else None
                    ran[key] += upper - lower
                    times[key] += 1
                    longest[key] = max(longest[key], upper - lower)
    for told in threads["behind"]:
        key = told["name"], told["pid"]
        if key in ran:
            verdicts.claim("victim", f"behind {key} time", told["time_ns"], ran[key])
            verdicts.claim("victim", f"behind {key} longest", told["max_ns"], longest[key])
        else:
            verdicts.claim("victim", f"behind {key} has rows", told["time_ns"], 0)
    all_told = sum(told["time_ns"] for told in threads["behind"])
    verdicts.claim("victim", "all whom it waited behind", all_told, sum(ran.values()))


def interrupted(rows, threads, runs, verdicts):
    by_cpu = {cpu: runs[rows.cpu[runs] == cpu] for cpu in np.unique(rows.cpu[runs])}
    found = collections.Counter()
    for cpu, mine in by_cpu.items():
        mine = mine[np.argsort(rows.start[mine])]
        inside = np.flatnonzero(rows.in_books & np.isin(rows.kind, ("irq", "softirq", "nmi")) & (rows.cpu == cpu))
        place = np.searchsorted(rows.start[mine], rows.start[inside], side="right") - 1
        ok = (place >= 0) & (rows.end[inside] <= rows.end[mine[place]])
        for index in inside[ok]:
            found[str(rows.source[index])] += int(rows.self[index])
    for told in threads["interrupted_by"]:
        verdicts.claim("victim", f"interrupted by {told['name']}", told["time_ns"], found[told["name"]])


def delays(rows, threads, waits, runs, verdicts):
    waiting = np.array([index for index in waits if state(str(rows.detail[index])) == "waiting"], int)
    worst = np.sort(rows.dur[waiting])[::-1]
    wakes = rows.wakes()
    for place, delay in enumerate(threads["delays"]):
        name = f"delay {place + 1} of {delay['length_ns'] / 1e6:.1f} ms"
        begin = rows.begin + delay["at_ns"]
        if delay["kind"] == "throttled":
            quota = [index for index in waits if rows.tid[index] == delay["tid"] and state(str(rows.detail[index])) == "throttled"]
            parts = [part for index in quota for part in waited(rows, index) if part[0] == "throttled"]
            verdicts.claim("victim", f"{name} is a wait for the quota", delay["length_ns"],
                           next((end - since for _, since, end in parts if abs(since - begin) < 1), None))
            continue
        if delay["kind"] not in WAITING:
            verdicts.open("victim", name, delay["kind"], "an interruption, not a wait")
            continue
        mine = waiting[(rows.tid[waiting] == delay["tid"]) & (np.abs(rows.start[waiting] - begin) < 1)]
        verdicts.claim("victim", f"{name} is a row of thread {delay['tid']} at {delay['at_ns']}", True, len(mine) == 1)
        if len(mine) != 1:
            continue
        index = mine[0]
        verdicts.claim("victim", f"{name} length", delay["length_ns"], int(rows.dur[index]))
        verdicts.claim("victim", f"{name} cpu", delay["cpu"], int(rows.cpu[index]))
        verdicts.claim("victim", f"{name} kind", delay["kind"], str(rows.detail[index]))
        if place < len(worst) and all(d["kind"] in WAITING for d in threads["delays"]):
            verdicts.claim("victim", f"{name} is the longest but {place}", delay["length_ns"], int(worst[place]))
        ran, who = collections.Counter(), collections.Counter()
        for other, lower, upper in rows.beneath(rows.cpu[index], rows.start[index], rows.end[index]):
            if rows.kind[other] == "task":
                ran[str(rows.program[other]) if rows.owner[other] == "program" else str(rows.source[other])] += upper - lower
                who[int(rows.tid[other])] += upper - lower
        verdicts.claim("victim", f"{name}: it does not wait behind itself", 0, who[delay["tid"]])
        for culprit in delay["lost_to"]:
            verdicts.claim("victim", f"{name} lost to {culprit['name']}", culprit["time_ns"],
                           sum(t for n, t in ran.items() if n == culprit["name"]) if len(culprit["pids"]) != 1 else
                           sum(u - l for o, l, u in rows.beneath(rows.cpu[index], rows.start[index], rows.end[index])
                               if rows.pid[o] == culprit["pids"][0] and rows.kind[o] == "task"))
        if delay["woken_by"] is not None:
            edges = wakes.get(delay["tid"], np.array([], int))
            near = edges[np.abs(rows.start[edges] - rows.start[index]) < 50_000]
            verdicts.claim("victim", f"{name} woken by", delay["woken_by"].removeprefix("softirq "),
                           rows.cause(near[-1]).removeprefix("softirq ") if len(near) else "nothing")


def usage(rows, victim, verdicts):
    told = victim.get("usage")
    before = rows.header["before"]["programs"].get(str(victim["pid"]))
    after = rows.header["after"]["programs"].get(str(victim["pid"]))
    if told and before and after:
        verdicts.claim("victim", "user and system time", told["user_ns"] + told["system_ns"],
                       after["time_ns"] - before["time_ns"], 60_000_000)


def frames(rows, victim, verdicts):
    """A loop's frames: wake-ups after sleeping, put on a grid that is fitted to those that ran at once."""
    told = victim.get("frames")
    if not told:
        return
    figures, tid = told["figures"], told["tid"]
    mine = np.flatnonzero((rows.kind == "wait") & (rows.tid == tid))
    mine = mine[np.argsort(rows.start[mine])]
    woken = mine[rows.detail[mine] == "woken"]
    times = rows.start[woken].astype(float)
    period = figures["period_ns"]
    # Least squares of the wake-ups on whole numbers of periods, without those that are off the grid.
    number = np.round((times - times[0]) / period)
    for _ in range(5):
        slope, begin = np.polyfit(number, times, 1)
        off = times - (begin + slope * number)
        keep = np.abs(off - np.median(off)) < slope / 20
        slope, begin = np.polyfit(number[keep], times[keep], 1)
        number = np.round((times - begin) / slope)
    verdicts.claim("frames", "period", figures["period_ns"], round(slope), 30)
    watched = max(book["end_ns"] - book["begin_ns"] for book in rows.header["books"])
    verdicts.share("frames", "average FPS", figures["average_fps"], len(times) * 1e9 / watched, 0.01)
    verdicts.share("frames", "slots: frames and dropped", figures["frames"] + figures["dropped"], watched / slope, 0.005)
    run = rows.end[woken]
    slot = np.ceil((times - begin) / slope - 0.05)
    # A frame that follows slots without one has waited since the first of these was due.
    late = (run - (begin + slope * number)) > figures["late_from_ns"]
    late[1:] |= np.diff(number) > 1
    verdicts.share("frames", "late", figures["late"], int(late.sum()), 0.02)
    verdicts.share("frames", "dropped", figures["dropped"], int(np.diff(slot).clip(min=1).sum() - (len(slot) - 1)), 0.1)
    late_said = told["late"]
    verdicts.claim("frames", "causes of late frames add up", sum(c["frames"] for c in late_said["causes"]), late_said["frames"])
