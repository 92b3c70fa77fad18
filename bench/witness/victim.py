"""Checks the states of the audited program's threads."""

import collections

import numpy as np

WAITING = ("woken", "preempted", "yielded")
MOVED = ", moved"
QUOTA = ("sched_cfs_period_timer", "sched_cfs_slack_timer")
ON_CPU = {"page_fault": "page_fault", "reclaim": "reclaim"}
# Shorter idle times may be the switch to a thread that was just woken.
IDLED = 5_000


def check(rows, said, verdicts):
    victim = said.get("victim")
    if not victim or rows.sums:
        return
    threads, claim = victim["threads"], verdicts.claim
    off = np.flatnonzero((rows.kind == "wait") & (rows.end > rows.header["victim"]["begin_ns"]))
    born, throttled = rows.detail[off] == "reborn", rows.detail[off] == "throttled"
    # Any thread can be throttled. Other off-CPU reasons are recorded only for the program's threads.
    pids = set(rows.pid[off[~born & ~throttled]].tolist()) | ({victim["pid"]} if victim["pid"] else set())
    ours = np.isin(rows.pid, list(pids))
    waits = off[~born & ours[off]]
    runs = np.flatnonzero(ours & rows.in_books & (rows.kind == "task") & (rows.tid >= 0))
    runs = runs[rows.end[runs] > rows.header["victim"]["begin_ns"]]
    tids = set(rows.tid[waits].tolist()) | set(rows.tid[runs].tolist())
    # Another thread can reuse a TID.
    claim("victim", "threads", threads["threads"], len(tids), int(born.sum()))
    accounts(rows, threads, waits, runs, verdicts)
    woken = rows.dur[waits[np.isin(rows.detail[waits], ("woken", "woken" + MOVED))]]
    latency = threads["latency"]
    if latency and len(woken):
        claim("victim", "wake-ups", latency["count"], len(woken))
        claim("victim", "longest wake-up", latency["max_ns"], int(woken.max()))
        for key, q in (("median_ns", 0.5), ("p99_ns", 0.99)):
            if latency[key] is not None:
                verdicts.share("victim", f"wake-up {key}", latency[key], float(np.quantile(woken, q, method="inverted_cdf")), 0.2)
        claim("victim", "has a p99", latency["p99_ns"] is not None, len(woken) >= 299)
    if not rows.events_lost():
        missed = int((rows.detail[waits] == "missed").sum())
        claim("victim", "migrations", threads["migrations"], migrations(rows, waits, runs), missed)
    places = Places(rows)
    behind(rows, threads, waits, places, verdicts)
    interrupted(rows, threads, runs, verdicts)
    delays(rows, threads, waits, places, verdicts)
    usage(rows, victim, verdicts)
    frames(rows, victim, verdicts)


def accounts(rows, threads, waits, runs, verdicts):
    claim, states = verdicts.claim, collections.defaultdict(list)
    for index in waits:
        for name, begin, end in waited(rows, index):
            states[name].append(end - begin)
    for account in threads["accounts"]:
        name = account["state"]
        on = [ON_CPU.get(detail, "running") == name for detail in rows.detail[runs]]
        mine = runs[np.array(on, bool)]
        if len(mine):
            claim("victim", name, account["time_ns"], int(rows.self[mine].sum()))
            claim("victim", f"{name}: how often", account["count"], len(mine))
        elif name == "interrupted":
            claim("victim", "interrupted", account["time_ns"], int((rows.dur - rows.self)[runs].sum()))
        elif name == "unseen" and (rows.events_lost() or rows.header["victim"].get("incomplete")):
            verdicts.open("victim", name, account["time_ns"], "what is in no row")
        elif name in states:
            claim("victim", f"{name} time", account["time_ns"], sum(states[name]))
            claim("victim", f"{name} longest", account["max_ns"], max(states[name]))
        else:
            verdicts.open("victim", name, account["time_ns"], "no row of this state")
    claim("victim", "accounts add up", sum(a["time_ns"] for a in threads["accounts"]), threads["accounted_ns"])


def migrations(rows, waits, runs):
    """Counts how often a thread that waited then ran on another CPU than before."""
    ended = {(int(rows.tid[index]), int(rows.end[index])) for index in waits
             if state(str(rows.detail[index])) == "waiting"}
    last, found = {}, 0
    for index in runs[np.argsort(rows.start[runs], kind="stable")]:
        tid, cpu = int(rows.tid[index]), int(rows.cpu[index])
        found += last.get(tid, cpu) != cpu and (tid, int(rows.start[index])) in ended
        last[tid] = cpu
    return found


def state(detail):
    detail = detail.removesuffix(MOVED)
    return "waiting" if detail in WAITING else {"missed": "unseen"}.get(detail, detail)


def waited(rows, index):
    """Splits a wait into parts. A wait for quota takes its own time if that is shorter than the row, or else
    it ends with the last timer that refills any quota. The remaining time is run-queue wait."""
    name, begin, end = state(str(rows.detail[index])), int(rows.start[index]), int(rows.end[index])
    if name == "throttled":
        held = begin + int(rows.self[index])
        if held < end:
            return [(name, begin, held), ("waiting", held, end)]
        refills = np.flatnonzero(np.isin(rows.detail, QUOTA) & np.isin(rows.kind, ("irq", "softirq")) & (rows.start >= begin) & (rows.start < end))
        if len(refills):
            last = refills[np.lexsort((rows.end[refills], rows.start[refills]))][-1]
            refilled = min(int(rows.end[last]), end)
            return [(name, begin, refilled)] + ([("waiting", refilled, end)] if refilled < end else [])
    return [(name, begin, end)]


class Places:
    """Finds the last CPU of each thread."""

    def __init__(self, rows):
        found = np.flatnonzero(rows.in_books & (rows.kind == "task") & (rows.tid >= 0))
        found = found[np.lexsort((rows.start[found], rows.tid[found]))]
        self.starts, self.cpus = {}, {}
        for tid in np.unique(rows.tid[found]):
            mine = found[rows.tid[found] == tid]
            self.starts[int(tid)], self.cpus[int(tid)] = rows.start[mine], rows.cpu[mine]

    def before(self, tid, time):
        starts = self.starts.get(int(tid))
        place = -1 if starts is None else np.searchsorted(starts, time) - 1
        return int(self.cpus[int(tid)][place]) if place >= 0 else None


def behind_whom(rows, places, index, begin, end):
    """Returns (row, from, to) of each thread that ran on the awaited CPU, and that CPU if the row names another.

    While the CPU on which the wait ended was idle, the waiting thread was still on its previous CPU."""
    here = list(rows.beneath(rows.cpu[index], begin, end))
    if not str(rows.detail[index]).endswith(MOVED):
        return here, None
    idle = [upper for other, lower, upper in here if rows.kind[other] == "idle" and upper - lower >= IDLED]
    cpu = places.before(rows.tid[index], rows.start[index]) if idle else None
    if cpu is None:
        return here, None
    there = list(rows.beneath(cpu, begin, idle[-1]))
    return there + [piece for piece in here if piece[1] >= idle[-1]], cpu


def behind(rows, threads, waits, places, verdicts):
    ran, times, longest = collections.Counter(), collections.Counter(), collections.Counter()
    for index in waits:
        moved = str(rows.detail[index]).endswith(MOVED)
        for name, begin, end in waited(rows, index):
            if name != "waiting":
                continue
            for other, lower, upper in behind_whom(rows, places, index, begin, end)[0]:
                own = {"tool": "ticktax", "probe": "ticktax's probe"}.get(str(rows.owner[other]))
                name = own if own and rows.kind[other] == "task" else rows.name(other)
                name += MOVED if moved and rows.kind[other] == "idle" else ""
                key = name, int(rows.pid[other]) if rows.owner[other] == "program" else None
                ran[key] += upper - lower
                times[key] += 1
                longest[key] = max(longest[key], upper - lower)
    for told in threads["behind"]:
        key = told["name"], told["pid"]
        if key in ran:
            verdicts.claim("victim", f"behind {key} time", told["time_ns"], ran[key])
            # Intervals of zero length count too, except next to a long interrupt.
            verdicts.claim("victim", f"behind {key} how often", told["count"], times[key], 2)
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
            found[str(rows.kind[index]), str(rows.source[index])] += int(rows.self[index])
    for told in threads["interrupted_by"]:
        verdicts.claim("victim", f"interrupted by {told['name']}", told["time_ns"], found[told["kind"], told["name"]])


def waker(rows, index):
    """Returns the context of a wake-up: a program's name, or kernel work with its function."""
    if rows.owner[index] == "kernel":
        return f"{rows.source[index]} {rows.detail[index]}".strip()
    own = {"tool": "ticktax", "probe": "ticktax's probe"}.get(str(rows.owner[index]))
    return own or rows.name(index)


def delays(rows, threads, waits, places, verdicts):
    waiting = np.array([index for index in waits if state(str(rows.detail[index])) == "waiting"], int)
    worst = np.sort(rows.dur[waiting])[::-1]
    wakes = rows.wakes()
    for place, delay in enumerate(threads["delays"]):
        name = f"delay {place + 1} of {delay['length_ns'] / 1e6:.1f} ms"
        begin = rows.begin + delay["at_ns"]
        if delay["kind"] in ("throttled", "unthrottled"):
            of_quota(rows, waits, delay, name, begin, verdicts)
            continue
        if delay["kind"] not in WAITING:
            verdicts.open("victim", name, delay["kind"], "an interruption, not a wait")
            continue
        mine = waiting[(rows.tid[waiting] == delay["tid"]) & (rows.start[waiting] == begin)]
        mine = mine[rows.dur[mine] > 0]
        verdicts.claim("victim", f"{name} is a row of thread {delay['tid']} at {delay['at_ns']}", True, len(mine) == 1)
        if len(mine) != 1:
            continue
        index = mine[0]
        verdicts.claim("victim", f"{name} length", delay["length_ns"], int(rows.dur[index]))
        verdicts.claim("victim", f"{name} cpu", delay["cpu"], int(rows.cpu[index]))
        verdicts.claim("victim", f"{name} kind", delay["kind"], str(rows.detail[index]).removesuffix(MOVED))
        if place < len(worst) and all(d["kind"] in WAITING for d in threads["delays"]):
            verdicts.claim("victim", f"{name} is the longest but {place}", delay["length_ns"], int(worst[place]))
        lost_to(rows, places, delay, name, index, verdicts)
        if delay["woken_by"] is not None:
            edges = wakes.get(delay["tid"], np.array([], int))
            edges = edges[rows.kind[edges] != "idle"]
            near = edges[(rows.start[edges] <= rows.start[index]) & (rows.start[edges] >= rows.start[index] - 1_000_000)]
            verdicts.claim("victim", f"{name} woken by", delay["woken_by"], waker(rows, near[-1]) if len(near) else "nothing")


def of_quota(rows, waits, delay, name, begin, verdicts):
    """Checks a delay that is part of a wait for quota."""
    wanted = "throttled" if delay["kind"] == "throttled" else "waiting"
    quota = [index for index in waits if rows.tid[index] == delay["tid"] and state(str(rows.detail[index])) == "throttled"]
    parts = [part for index in quota for part in waited(rows, index) if part[0] == wanted]
    verdicts.claim("victim", f"{name} is a wait for the quota, or after it", delay["length_ns"],
                   next((end - since for _, since, end in parts if since == begin), None))


def lost_to(rows, places, delay, name, index, verdicts):
    pieces, waited_on = behind_whom(rows, places, index, int(rows.start[index]), int(rows.end[index]))
    verdicts.claim("victim", f"{name} waited on", delay.get("waited_on"), waited_on)
    ran, itself = collections.Counter(), 0
    for other, lower, upper in pieces:
        ran[rows.who(other), str(rows.kind[other])] += upper - lower
        itself += upper - lower if rows.tid[other] == rows.tid[index] else 0
    verdicts.claim("victim", f"{name}: it does not wait behind itself", 0, itself)
    for culprit in delay["ran"]:
        verdicts.claim("victim", f"{name} lost to {culprit['name']}", culprit["time_ns"], ran[culprit["name"], culprit["kind"]])
    verdicts.claim("victim", f"{name} lost to all", sum(culprit["time_ns"] for culprit in delay["ran"]), sum(ran.values()))


def usage(rows, victim, verdicts):
    told = victim.get("usage")
    before = rows.header["before"]["programs"].get(str(victim["pid"]))
    after = rows.header["after"]["programs"].get(str(victim["pid"]))
    # The usage is read before and after everything else, at times that are not in the recording.
    if told and before and after:
        grew = after["time_ns"] - before["time_ns"]
        used = told["user_ns"] + told["system_ns"]
        verdicts.claim("victim", f"user and system time is no less than between other readings, {grew}", True, used >= grew - 60_000_000)


def apart(times, least):
    """Drops sorted times that are less than `least` after the previous time kept."""
    kept = list(times[:1])
    for time in times[1:]:
        if time - kept[-1] >= least:
            kept.append(time)
    return np.array(kept)


def rearmed(rows, mine, figures, verdicts):
    """Checks a loop that sleeps for a fixed time after each frame.

    A frame is due one short interval after the one before: a tenth of all intervals are shorter than that."""
    begins, wakes = [], {int(rows.start[index]): int(rows.end[index]) for index in mine if rows.detail[index].startswith("woken")}
    for index in mine[np.isin(rows.detail[mine], ("sleeping", "sleeping" + MOVED))]:
        end = int(rows.end[index])
        begins.append(wakes.get(end, end))
    begins = np.array(sorted(begins))
    # If wake-ups are closer than half the mean interval, only the first one is a frame. Iterate to
    # find the mean.
    mean, all_begins = float(figures["period_ns"]), begins
    for _ in range(8):
        begins = apart(all_begins, mean / 2)
        if len(begins) < 9:
            return False
        mean = (begins[-1] - begins[0]) / (len(begins) - 1)
    gaps = np.diff(begins)
    # On a grid, a shorter interval follows a longer one.
    off = np.cumsum(gaps - np.median(gaps))
    over = np.abs((off[8:] - off[:-8]) - np.median(off[8:] - off[:-8])) if len(off) > 16 else np.abs(off)
    if np.median(over) < 2 * np.median(np.abs(gaps - np.median(gaps))):
        return False
    period = int(np.sort(gaps)[len(gaps) // 10])
    claim = verdicts.claim
    claim("frames", "shortest interval", figures["period_ns"], period, 0.001 * period)
    claim("frames", "frames", figures["frames"], len(begins), 1)
    claim("frames", "late", figures["late"], int((gaps > figures["period_ns"] + figures["late_threshold_ns"]).sum()), 1)
    return True


def frames(rows, victim, verdicts):
    """Checks a loop's frames: wake-ups after sleeping, on a grid fitted to those that ran immediately."""
    told = victim.get("frames")
    if not told:
        return
    figures, tid = told["figures"], told["tid"]
    mine = np.flatnonzero((rows.kind == "wait") & (rows.tid == tid))
    mine = mine[np.argsort(rows.start[mine])]
    woken = mine[rows.detail[mine] == "woken"]
    times = rows.start[woken].astype(float)
    period = figures["period_ns"]
    if rearmed(rows, mine, figures, verdicts):
        return
    # Fit the wake-ups to whole numbers of periods by least squares, excluding those off the grid.
    number = np.round((times - times[0]) / period)
    for _ in range(5):
        slope, begin = np.polyfit(number, times, 1)
        off = times - (begin + slope * number)
        keep = np.abs(off - np.median(off)) < slope / 20
        slope, begin = np.polyfit(number[keep], times[keep], 1)
        number = np.round((times - begin) / slope)
    verdicts.claim("frames", "period", figures["period_ns"], round(slope), 30)
    watched = max(book["end_ns"] - book["begin_ns"] for book in rows.header["cpus"])
    verdicts.share("frames", "average FPS", figures["average_fps"], len(times) * 1e9 / watched, 0.01)
    verdicts.share("frames", "slots: frames and dropped", figures["frames"] + figures["dropped"], watched / slope, 0.005)
    run = rows.end[woken]
    slot = np.ceil((times - begin) / slope - 0.05)
    # A frame after empty slots has been waiting since the first of them was due.
    late = (run - (begin + slope * number)) > figures["late_threshold_ns"]
    late[1:] |= np.diff(number) > 1
    verdicts.share("frames", "late", figures["late"], int(late.sum()), 0.02)
    verdicts.share("frames", "dropped", figures["dropped"], int(np.diff(slot).clip(min=1).sum() - (len(slot) - 1)), 0.1)
    late_said = told["late"]
    verdicts.claim("frames", "causes of late frames add up", sum(c["frames"] for c in late_said["causes"]), late_said["frames"])
