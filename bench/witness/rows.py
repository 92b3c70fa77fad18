"""Holds a recording's rows as arrays, and a statement's claims about them with their verdicts."""

import json

import numpy as np
import pyarrow.compute as pc
import pyarrow.parquet as pq

# Kinds of rows that together account for all of a CPU's time.
BOOKS = ("idle", "task", "irq", "softirq", "nmi", "steal")
UNREPORTED = "unreported thread"
LONG_INTERRUPT = 100_000


class Verdicts:
    """Claims of a statement, each compared with the rows."""

    def __init__(self):
        self.all = []

    def claim(self, section, sentence, said, found, tolerance=0):
        """Claims that a number is right within a tolerance, or that another value is equal."""
        if isinstance(said, (int, float)) and isinstance(found, (int, float, np.number)):
            true = abs(said - found) <= tolerance
        else:
            true = said == found
        self.all.append((section, sentence, said, found, "true" if true else "FALSE"))

    def share(self, section, sentence, said, found, by):
        """Claims that a number is right within a relative tolerance. Histogram buckets are a quarter octave wide."""
        self.claim(section, sentence, said, found, abs(found) * by + 1)

    def open(self, section, sentence, said, why):
        self.all.append((section, sentence, said, why, "open"))


class Rows:
    """Rows as one array per column: text as str ('' for null), numbers as int64 (-1 for null)."""

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
        begins = {book["cpu"]: book["begin_ns"] for book in header["cpus"]}
        self.begin = min(begins.values()) if begins else 0
        self.begins = begins
        self.sums = bool((self.count > 1).any())
        self._lines = {}
        self._long = {}

    def line(self, cpu):
        """Returns the indices of a CPU's rows for single threads and idle time, in time order."""
        if cpu not in self._lines:
            found = np.flatnonzero(self.on_cpu & (self.cpu == cpu) & (self.count == 1))
            self._lines[cpu] = found[np.argsort(self.start[found], kind="stable")]
        return self._lines[cpu]

    def pieces(self, cpu, begin, end):
        """Yields (row, from, to) for each thread that ran on a CPU between `begin` and `end`."""
        line = self.line(cpu)
        first = np.searchsorted(self.end[line], begin, side="right")
        for index in line[first:]:
            if self.start[index] >= end:
                break
            lower, upper = max(begin, self.start[index]), min(end, self.end[index])
            if upper > lower or begin < self.start[index] == self.end[index]:
                yield index, int(lower), int(upper)

    def beneath(self, cpu, begin, end):
        """Like `pieces`, but separates interrupts of at least 100 µs, unless `begin` to `end` is shorter."""
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
        """Returns each thread's wake-ups in time order, as row indices of the edges."""
        found = np.flatnonzero(self.edge == "woke")
        found = found[np.argsort(self.start[found], kind="stable")]
        by_thread = {}
        for index in found:
            by_thread.setdefault(int(self.edge_tid[index]), []).append(index)
        return {tid: np.array(rows) for tid, rows in by_thread.items()}

    def events_lost(self):
        """Counts lost events, except gaps of a probe."""
        return sum(loss["events"] for loss in self.header["coverage"]["lost"])

    def lost_ns(self, cpu):
        """Returns the own time of events that were lost on a CPU."""
        return sum(loss["self_ns"] for loss in self.header["coverage"]["lost"] if loss["cpu"] == cpu)

    def who(self, index):
        """Returns the name under which a row's time is counted, with the process if it is a program."""
        if self.kind[index] == "task":
            own = {"tool": "ticktax", "probe": "ticktax's probe"}.get(str(self.owner[index]))
            if own:
                return own
            if self.owner[index] == "program":
                return str(self.program[index])
        return str(self.source[index])

    def name(self, index):
        """Returns the thread's name in the statement, which includes the program if that has another name."""
        source, program = self.source[index], self.program[index]
        if self.kind[index] == "task" and program and self.owner[index] == "program" and program != source:
            return f"{source} of {program}"
        return str(source)

    def cause(self, index):
        """Returns the context in which an edge's row caused the wake-up."""
        kind = "softirq " if self.kind[index] == "softirq" else ""
        source = self.source[index]
        if self.kind[index] == "task" and self.detail[index]:
            source = source.split("/")[0]
        return f"{kind}{source} {self.detail[index]}".strip()


def load(path):
    table = pq.read_table(path)
    return Rows(table, json.loads(pq.read_metadata(path).metadata[b"ticktax"]))
