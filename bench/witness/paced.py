"""Checks the frames of a loop that reports when they were due."""

import numpy as np


def check(rows, said, verdicts):
    frames = np.flatnonzero((rows.kind == "frame") & (rows.due >= 0))
    frames = frames[np.argsort(rows.due[frames])]
    figures, claim = said["figures"], verdicts.claim
    if not len(frames) or not figures:
        verdicts.open("frames", "figures", None, "no frames among the rows")
        return
    due, began, ended, period = rows.due[frames], rows.start[frames], rows.end[frames], figures["period_ns"]
    wait = began - due
    dropped = wait // period
    claim("frames", "frames", figures["frames"], len(frames))
    claim("frames", "dropped", figures["dropped"], int(dropped.sum()))
    claim("frames", "late", figures["late"], int((wait > figures["late_threshold_ns"]).sum()))
    claim("frames", "average FPS", figures["average_fps"], (len(frames) - 1) * 1e9 / (began[-1] - began[0]), 1e-6)
    if figures["expected"] is not None:
        claim("frames", "wanted", figures["expected"], int((began[-1] - due[0]) // period + 1), 1)
        slipped = figures["expected"] - figures["frames"] - figures["dropped"]
        claim("frames", "slipped", figures["slipped"], max(slipped, 0))
    lengths = {
        "wait": each_slot(wait, dropped, period),
        "busy": ended - began,
        "interval": np.diff(began),
        "work": rows.self[frames],
        "frame_time": each_slot(ended - due, dropped, period),
    }
    for name, values in lengths.items():
        told = figures[name]
        if not told:
            continue
        claim("frames", f"{name} count", told["count"], len(values))
        claim("frames", f"{name} least", told["min_ns"], int(values.min()))
        claim("frames", f"{name} mean", told["mean_ns"], float(values.mean()), 1)
        claim("frames", f"{name} most", told["max_ns"], int(values.max()))
        for quantile in told["quantiles"]:
            exact = float(np.quantile(values, quantile["q"], method="inverted_cdf"))
            verdicts.share("frames", f"{name} {quantile['q']}", quantile["value_ns"], exact, 0.02 if told["exact"] else 0.12)
    seconds = np.bincount((began - due[0]) // 1_000_000_000)[:-1]
    for line in figures["fps"]:
        claim("frames", f"seconds of {line['fps']} frames", line["seconds"], int((seconds == line["fps"]).sum()))


def each_slot(time, dropped, period):
    """Returns how late each frame is, and how late each slot is that it dropped."""
    return np.concatenate([(time - period * k)[dropped >= k] for k in range(int(dropped.max()) + 1)])
