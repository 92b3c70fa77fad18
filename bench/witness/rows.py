"""A recording's rows as arrays, and claims about them with verdicts."""

import json

import numpy as np
import pyarrow.compute as pc
import pyarrow.parquet as pq

# Kinds of rows that together cover a CPU's time.
BOOKS = ("idle", "task", "irq", "softirq", "nmi", "steal")
UNREPORTED = "unreported thread"
LONG_INTERRUPT = 100_000


class Verdicts:
    """Claims of a statement, compared with the rows."""

    def __init__(self):
        self.all = []

    def claim(self, section, sentence, said, found, tolerance=0):
        """Claims a number with a tolerance, or any comparable value."""
        if isinstance(said, (int, float)) and isinstance(found, (int, float, np.number)):
            true = abs(said - found) <= tolerance
        else:
            true = said == found
        self.all.append((section, sentence, said, found, "true" if true else "FALSE"))

    def share(self, section, sentence, said, found, by):
        """Claims a number with a relative tolerance. A histogram bucket is a quarter of an octave wide."""
        self.claim(section, sentence, said, found, abs(found) * by + 1)

    def open(self, section, sentence, said, why):
        self.all.append((section, sentence, said, why, "open"))


class Rows:
    """Columns as arrays: text as str ('' for null), numbers as int64 (-1 for null)."""

    def __init__(self, table, header):
        self.header = header
        for name in ("cpu", "start_ns", "dur_ns", "self_ns", "pid", "tid", "count", "max_ns", "edge_tid", "due_ns"):
            column = pc.fill_null(table[name].cast("int64"), -1)
            setattr(self, name.removesuffix("_ns"), column.to_numpy())
        for name in ("kind", "source", "detail", "owner", "program", "edge", "edge_to"):
            column = pc.fill_null(table[name].cast("string"), "")
            setattr(self, name, column.to_numpy(zero_copy_only=False).astype(str))
        self.end = self.start + self.dur
        self.is_edge = self.edge != ""
        self.single = (self.count == 1) & ~self.is_edge
        self.in_books = np.isin(self.kind, BOOKS) & ~self.is_edge
        self.on_cpu = self.in_books & np.isin(self.kind, ("task", "idle"))
        begins = {book["cpu"]: book["begin_ns"] for book in header["books"]}
        self.begin = min(begins.values()) if begins else 0
        self.begins = begins
        self.sums = bool((self.count > 1).any())
        self._lines = {}
        self._long = {}

    def line(self, cpu):
        """Indices of a CPU's single thread and idle rows, in time order."""
        if cpu not in self._lines:
            found = np.flatnonzero(self.on_cpu & (self.cpu == cpu) & (self.count == 1))
            self._lines[cpu] = found[np.argsort(self.start[found], kind="stable")]
        return self._lines[cpu]

    def pieces(self, cpu, begin, end):
        """(row, from, to) of each thread that ran on a CPU from `begin` to `end`."""
        line = self.line(cpu)
        first = np.searchsorted(self.end[line], begin, side="right")
        for index in line[first:]:
            if self.start[index] >= end:
                break
            lower, upper = max(begin, self.start[index]), min(end, self.end[index])
            if upper > lower or begin < self.start[index] == self.end[index]:
                yield index, int(lower), int(upper)

    def beneath(self, cpu, begin, end):
        """Like `pieces`, for a wait: interrupts of at least 100 µs are separate, unless the wait is shorter."""
        if end - begin < LONG_INTERRUPT:
            yield from self.pieces(cpu, begin, end)
            return
        if cpu not in self._long:
            found = self.in_books & np.isin(self.kind, ("irq", "softirq", "nmi")) & (self.detail == "") & (self.dur >= LONG_INTERRUPT)
            found = np.flatnonzero(found & (self.cpu == cpu) & self.single)
            self._long[cpu] = found[np.argsort(self.start[found], kind="stable")]
        for index, lower, upper in self.pieces(cpu, begin, end):
            for interrupt in self._long[cpu]:
                first, last = max(lower, int(self.start[interrupt])), min(upper, int(self.end[interrupt]))
                if last > first:
                    if first > lower:
                        yield index, lower, first
                    yield interrupt, first, last
                    lower = last
            if upper > lower or self.start[index] == self.end[index]:
                yield index, lower, upper

    def wakes(self):
        """Sorted wake-up times of each thread, and the rows of these edges."""
        found = np.flatnonzero(self.edge == "woke")
        found = found[np.argsort(self.start[found], kind="stable")]
        by_thread = {}
        for index in found:
            by_thread.setdefault(int(self.edge_tid[index]), []).append(index)
        return {tid: np.array(rows) for tid, rows in by_thread.items()}

    def events_lost(self):
        """Number of lost events. Gaps of a probe do not count."""
        return sum(loss["events"] for loss in self.header["coverage"]["lost"])

    def lost_ns(self, cpu):
        """Own time of lost events on a CPU."""
        return sum(loss["self_ns"] for loss in self.header["coverage"]["lost"] if loss["cpu"] == cpu)

    def who(self, index):
        """Name that a row's time is counted under, with the process if it is a program."""
        if self.kind[index] == "task":
            own = {"tool": "ticktax", "probe": "ticktax's probe"}.get(str(self.owner[index]))
            if own:
                return own
            if self.owner[index] == "program":
                return str(self.program[index])
        return str(self.source[index])

    def name(self, index):
        """A thread's name in the statement. Includes the program if its name differs."""
        source, program = self.source[index], self.program[index]
        if self.kind[index] == "task" and program and self.owner[index] == "program" and program != source:
            return f"{source} of {program}"
        return str(source)

    def cause(self, index):
        """Context in which an edge's row caused the wake-up."""
        kind = "softirq " if self.kind[index] == "softirq" else ""
        source = self.source[index]
        if self.kind[index] == "task" and self.detail[index]:
            source = source.split("/")[0]
        return f"{kind}{source} {self.detail[index]}".strip()


def load(path):
    table = pq.read_table(path)
    return Rows(table, json.loads(pq.read_metadata(path).metadata[b"ticktax"]))
