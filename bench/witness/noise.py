"""Checks the gaps of the spin probe, and their contents."""

import collections

import numpy as np

from rows import UNREPORTED

SHORT = 1_000
SLACK = 100
DEEP = 16


def held_in(rows, inside, begin, end):
    """Returns the time of each row `inside` a gap: own time, or at the gap's edges the part without nested rows."""
    if all(rows.start[inside] >= begin - SLACK) and all(rows.end[inside] <= end + SLACK):
        return {index: int(rows.self[index]) for index in inside}
    own, open_rows = {}, []
    for index in sorted(inside, key=lambda row: (rows.start[row], -rows.end[row])):
        lower, upper = max(begin, int(rows.start[index])), min(end, int(rows.end[index]))
        while open_rows and rows.end[open_rows[-1]] <= lower:
            open_rows.pop()
        own[index] = max(upper - lower, 0)
        if open_rows:
            own[open_rows[-1]] -= own[index]
        open_rows.append(index)
    return own


def check(rows, said, verdicts):
    told = said.get("gaps")
    if not told:
        return
    gaps = np.flatnonzero((rows.kind == "gap") & rows.single)
    if (rows.source[gaps] == "sleep").any():
        verdicts.open("noise", "late wake-ups of a sleeping probe", told["long"]["count"], "only gaps of a spinning one are told apart here")
        return
    uncertainty = (said.get("clock") or {}).get("uncertainty_ns") or 0
    kinds = {"long": [], "short": [], "yielded": []}
    parts = {}
    for cpu in np.unique(rows.cpu[gaps]):
        frames = np.flatnonzero(rows.in_books & (rows.cpu == cpu) & rows.single & (rows.owner != "probe") & (rows.kind != "idle"))
        frames = frames[np.argsort(rows.start[frames])]
        starts = rows.start[frames]
        for gap in gaps[rows.cpu[gaps] == cpu]:
            first, last = np.searchsorted(starts, (rows.start[gap] - SLACK - uncertainty, rows.end[gap]))
            # Rows that started before the probe last ran contribute time of an unreported thread.
            before = frames[max(first - DEEP, 0):first]
            inside = np.concatenate([before[rows.end[before] > rows.start[gap]], frames[first:last]])
            program = inside[(rows.kind[inside] == "task") & np.isin(rows.owner[inside], ("program", "tool"))]
            parts[gap] = held_in(rows, inside, int(rows.start[gap]), int(rows.end[gap]))
            kind = "yielded" if len(program) else "short" if rows.dur[gap] < SHORT else "long"
            kinds[kind].append(gap)
    for kind, mine in kinds.items():
        mine = np.array(mine, int)
        verdicts.share("noise", f"{kind} gaps", told[kind]["count"], len(mine), 0.002)
        verdicts.share("noise", f"{kind} time", told[kind]["time_ns"], int(rows.dur[mine].sum()), 0.002)
        split = sum(told[kind][part] for part in ("named_ns", "entry_exit_ns", "hypervisor_or_firmware_ns", "unexplained_ns"))
        verdicts.claim("noise", f"{kind}: its parts add up", split, told[kind]["time_ns"])
        if len(mine):
            verdicts.claim("noise", f"{kind} longest", told[kind]["max_ns"], int(rows.dur[mine].max()))
            exact = float(np.quantile(rows.dur[mine], 0.5, method="inverted_cdf"))
            verdicts.share("noise", f"{kind} median", told[kind]["median_ns"], exact, 0.2)
    named = sum(own for gap in kinds["long"] for index, own in parts[gap].items() if rows.source[index] != UNREPORTED)
    verdicts.share("noise", "named work in long gaps", told["long"]["named_ns"], named, 0.02)
    for place, worst in enumerate(told["longest"]):
        at = rows.begin + worst["at_ns"]
        near = gaps[(rows.cpu[gaps] == worst["cpu"]) & (np.abs(rows.start[gaps] - at) < 2)]
        sentence = f"gap {place + 1} of {worst['length_ns'] / 1e6:.2f} ms"
        verdicts.claim("noise", f"{sentence} is a row", True, len(near) == 1)
        if len(near) != 1:
            continue
        verdicts.claim("noise", f"{sentence} length", worst["length_ns"], int(rows.dur[near[0]]))
        held = collections.Counter()
        for index, own in parts[near[0]].items():
            name = rows.source[index] + (" " + rows.detail[index] if rows.detail[index] else "")
            held[str(name)] += own
        for part in worst["parts"]:
            if part["name"] in ("entry and exit", "hypervisor or firmware", "unexplained"):
                continue
            verdicts.claim("noise", f"{sentence} held {part['name']}", part["time_ns"], held[part["name"]])
        split = sum(part["time_ns"] for part in worst["parts"])
        verdicts.claim("noise", f"{sentence}: its parts are no more than it", True, split <= worst["length_ns"])
    lengths = np.sort(rows.dur[np.array(kinds["long"], int)])[::-1]
    for place, worst in enumerate(told["longest"][: len(lengths)]):
        verdicts.claim("noise", f"gap {place + 1} is the longest but {place}", worst["length_ns"], int(lengths[place]))
    verdicts.open("noise", "entry and exit, outside, and their bounds", told["long"]["entry_exit_ns"], "a rule over residuals; only their sum is checked")
