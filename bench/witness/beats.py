"""Checks periodic sources and their causes. Finds events by name and estimates each period in another way."""

import collections

import numpy as np


def check(rows, said, verdicts):
    told = said.get("beats")
    if not told or rows.sums:
        return
    wakes = rows.wakes()
    for beat in told["beats"]:
        name = f"{beat['name']} {beat['pid'] or ''} every {beat['period_ns'] / 1e6:.3f} ms"
        rowset, longest = events(rows, beat)
        if not len(rowset):
            verdicts.open("beats", name, beat["kind"], "no events of that name found by this script")
            continue
        alone = sum(other["name"] == beat["name"] and other["pid"] == beat["pid"] for other in told["beats"]) == 1
        period(rows, beat, name, rowset, alone, verdicts)
        verdicts.claim("beats", f"{name}: at most", True, longest >= beat["max_ns"] * 0.999)
        if beat["chain"]:
            chain(rows, beat, name, rowset, wakes, verdicts)


def events(rows, beat):
    """Returns the rows of a periodic source in order, without continuations, and the length of its longest event."""
    source, kind = beat["name"], beat["kind"]
    cpus = cpu_list(beat["cpus"])
    on = rows.single & np.isin(rows.cpu, cpus)
    words = source.removeprefix("softirq ").split(" ", 1)
    detail = words[1] if len(words) > 1 else ""
    if kind == "thread_starts":
        return births(rows, source.removeprefix("a new "), on)
    if kind == "thread":
        pid = beat["pid"]
        mine = on & (rows.kind == "task") & ((rows.pid == pid) if pid else True) & (rows.source == source.split(" of ")[0])
    elif kind == "interrupt":
        of = "softirq" if source.startswith("softirq ") else "irq"
        mine = on & (rows.kind == of) & (rows.source == words[0]) & (rows.detail == detail)
    elif kind == "work":
        mine = on & (rows.kind == "task") & (rows.detail == detail)
    elif kind == "off_cpu":
        mine = on & (rows.kind == "wait") & (rows.detail == source.rsplit(" ", 1)[1]) & (rows.pid == beat["pid"])
    elif kind == "gaps":
        mine = on & (rows.kind == "gap") & (rows.dur >= 1_000)
    else:
        return np.array([], int), 0
    found = np.flatnonzero(mine)
    if not len(found):
        return found, 0
    if beat.get("tids"):
        found = found[np.isin(rows.tid[found], beat["tids"])]
    elif kind == "thread" and beat["pid"]:
        # The source is one thread. Among threads of the same name, it is the one with the most
        # events that are a period apart.
        mine = [found[rows.tid[found] == tid] for tid in np.unique(rows.tid[found])]
        found = max(mine, key=lambda of: (on_beat(rows, beat, np.sort(of)).sum(), len(of)))
    found = found[np.argsort(rows.start[found])]
    new = np.ones(len(found), bool)
    new[1:] = rows.start[found[1:]] - rows.end[found[:-1]] > 1_000
    if kind == "work":
        # A row on another CPU is another event, even if it follows without a gap.
        new[1:] |= rows.cpu[found[1:]] != rows.cpu[found[:-1]]
    # An event with several rows lasts from the start of the first row to the end of the last one.
    begins = np.flatnonzero(new)
    ends = np.maximum.reduceat(rows.end[found], begins)
    return found[new], int((ends - rows.start[found[begins]]).max())


def on_beat(rows, beat, found):
    """Returns which of the rows `found` start one period before or after another one."""
    times = np.sort(rows.start[found]).astype(float)
    reach = max(2 * beat["jitter_ns"], beat["period_ns"] * 0.002, (beat["period_high_ns"] - beat["period_low_ns"]) / 2)
    def others(lag):
        return np.searchsorted(times, rows.start[found] + lag + reach) > np.searchsorted(times, rows.start[found] + lag - reach)
    return others(beat["period_ns"]) | others(-beat["period_ns"])


def births(rows, name, on):
    """Returns the first on-CPU period of each thread called `name`, and the length of the longest one."""
    found = np.flatnonzero(on & (rows.kind == "task") & (rows.source == name))
    found = found[np.argsort(rows.start[found])]
    found = found[np.sort(np.unique(rows.tid[found], return_index=True)[1])]
    return found, int(rows.dur[found].max(initial=0))


def cpu_list(text):
    cpus = []
    for part in str(text).split(","):
        first, _, last = part.partition("-")
        cpus += range(int(first), int(last or first) + 1)
    return cpus


def pairs(times, lag, reach):
    """Counts the pairs of events that are `lag` ± `reach` apart."""
    return int((np.searchsorted(times, times + lag + reach) - np.searchsorted(times, times + lag - reach)).sum())


def period(rows, beat, name, rowset, alone, verdicts):
    times, claimed = rows.start[rowset].astype(float), beat["period_ns"]
    if 1.5 < beat["events_per_period"] and len(times) < 2 * beat["seen"] * beat["events_per_period"]:
        # Count a burst once, at its first event.
        first = np.ones(len(times), bool)
        first[1:] = np.diff(times) > claimed / 4
        times = times[first] if first.sum() > beat["seen"] / 2 else times
    # Test 1: more pairs of events are one period apart than any other time apart.
    width = (beat["period_high_ns"] - beat["period_low_ns"]) / 2
    others = (0.67, 0.72, 0.77, 0.83, 0.88, 1.12, 1.17, 1.23, 1.28, 1.33)
    paired, most_seen = False, 0
    for part in (0.05, 0.15):
        reach = max(min(max(2 * beat["jitter_ns"], claimed * 0.002), claimed * part), width)
        here = pairs(times, claimed, reach)
        chance = float(np.mean([pairs(times, claimed * lag, reach) for lag in others]))
        most_seen = max(most_seen, here, chance)
        paired |= here >= 3 and here > chance + 2.5 * np.sqrt(chance)
    if most_seen < 3:
        verdicts.open("beats", f"{name} period", claimed, "bursts so dense that hardly any is apart from the next")
        return
    # Test 2: more events fall on one phase of a grid than on any other.
    near = min(max(3 * beat["jitter_ns"], claimed * 0.002), claimed * 0.1)
    phases = np.sort(times % claimed)
    most = int((np.searchsorted(phases, phases + 2 * near) - np.arange(len(phases))).max())
    usual = len(times) * 2 * near / claimed
    gathered = not beat["rearmed"] and most > usual + 5 * np.sqrt(usual) + 3
    gathered |= more_slots(times, claimed, near)
    verdicts.claim("beats", f"{name}: pairs one period apart, {here} beside {chance:.1f} others, or one phase", True,
                   bool(paired or gathered))
    # With few other events, estimate the period directly. Use only intervals close to the claim,
    # because the thread may have done something else before, at another rate.
    gaps = np.diff(times)
    near = min(max(3 * beat["jitter_ns"], claimed * 0.05), claimed * 0.25)
    close = gaps[np.abs(gaps - claimed) < near]
    if not alone or len(close) < 0.7 * beat["seen"] or np.std(close) > claimed * 0.05:
        return
    if beat["rearmed"]:
        # Late wake-ups lengthen some intervals, and temporary rates add others. The true mean lies
        # between the mean without the late ones and the mean with the additional ones.
        all_near = gaps[np.abs(gaps - claimed) < claimed * 0.25]
        error = float(np.std(close) / np.sqrt(len(close)))
        low, high = sorted((float(np.mean(close)), float(np.mean(all_near))))
        found = min(max(claimed, low), high)
    else:
        # Median of the slopes between any two events of the source (Theil–Sen), which is robust against
        # events with other causes.
        mine = np.concatenate([times[:-1][np.abs(gaps - claimed) < near], times[1:][np.abs(gaps - claimed) < near]])
        mine = np.unique(mine)
        mine = mine[:: len(mine) // 600 + 1]
        apart = mine[None, :] - mine[:, None]
        steps = np.round(apart / claimed)
        slopes = apart[steps >= 1] / steps[steps >= 1]
        found = float(np.median(slopes))
        rest = mine - mine[0] - found * np.round((mine - mine[0]) / claimed)
        error = float(1.4826 * np.median(np.abs(rest - np.median(rest))) * np.sqrt(12) / len(mine) ** 1.5)
    verdicts.claim("beats", f"{name} period", claimed, round(float(found), 1), 2 * width + 3 * error)


def more_slots(times, claimed, near):
    """Returns whether at one phase, more slots of a grid (or of a part of it) have an event than at others.

    A burst counts once."""
    slots = np.floor(times / claimed)
    phases = times / claimed - slots
    width = 2 * near / claimed
    hit = []
    for at in np.arange(0, 1, width / 2):
        away = (phases - at) % 1.0
        hit.append(len(np.unique(slots[away < width])))
    usual, all_slots = float(np.median(hit)), slots[-1] - slots[0] + 1
    spread = np.sqrt(max(usual * (1 - usual / all_slots), 1.0))
    return max(hit) > usual + (3 + np.sqrt(2 * np.log(len(hit)))) * spread


def chain(rows, beat, name, rowset, wakes, verdicts):
    """Checks the first link of the chain: the last edge to the source since it last ran."""
    if len(beat["chain"]) < 2:
        return
    link = beat["chain"][-2]
    counts, seen = collections.Counter(), 0
    if beat["kind"] in ("thread_starts", "off_cpu", "gaps"):
        verdicts.open("beats", f"{name} triggered by", link, "edges to new threads, and to what ends a wait or a gap, are not followed here")
        return
    if beat["kind"] == "work":
        queued = np.flatnonzero((rows.edge == "queued") & np.isin(rows.edge_to, np.unique(rows.detail[rowset])))
        queued = queued[np.argsort(rows.start[queued], kind="stable")]
        for index in rowset:
            last = np.searchsorted(rows.start[queued], rows.start[index], side="right") - 1
            if last >= 0 and rows.start[index] - rows.start[queued[last]] < beat["period_ns"]:
                counts[rows.cause(queued[last])] += 1
                seen += 1
    elif beat["kind"] == "thread":
        runs_of = {}
        for tid in np.unique(rows.tid[rowset]):
            runs = np.flatnonzero(rows.single & (rows.kind == "task") & (rows.tid == tid))
            runs_of[int(tid)] = np.sort(rows.end[runs])
        # The thread's other on-CPU periods have other causes.
        beating = rowset[on_beat(rows, beat, rowset)]
        for index in beating if len(beating) else rowset:
            tid = int(rows.tid[index])
            edges = wakes.get(tid, np.array([], int))
            last = np.searchsorted(rows.start[edges], rows.start[index], side="right") - 1
            ends = runs_of[tid]
            left = np.searchsorted(ends, rows.start[index], side="right") - 1
            if last >= 0 and (left < 0 or rows.start[edges[last]] > ends[left] - 100_000):
                counts[rows.cause(edges[last])] += 1
                seen += 1
    elif not beat["name"].startswith("softirq "):
        verdicts.open("beats", f"{name} triggered by", link, "an interrupt's cause is no edge")
        return
    else:
        raised = np.flatnonzero((rows.edge == "raised") & np.isin(rows.cpu, rows.cpu[rowset]))
        to = beat["name"].removeprefix("softirq ").split(" ")[0]
        raised = raised[rows.edge_to[raised] == to]
        raised = raised[np.argsort(rows.start[raised])]
        for index in rowset:
            last = np.searchsorted(rows.start[raised], rows.start[index], side="right") - 1
            while last >= 0 and rows.cpu[raised[last]] != rows.cpu[index]:
                last -= 1
            if last >= 0 and rows.start[index] - rows.start[raised[last]] < beat["period_ns"]:
                counts[rows.cause(raised[last])] += 1
                seen += 1
    if not seen:
        verdicts.claim("beats", f"{name} triggered by", link, "no edge")
        return
    most, times = counts.most_common(1)[0]
    verdicts.claim("beats", f"{name} triggered by", link, most)
    verdicts.claim("beats", f"{name}: most of its edges are that one's (60 %)", True, times >= 0.6 * seen)
