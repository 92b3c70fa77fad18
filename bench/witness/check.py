#!/usr/bin/env python3
"""Checks every number of a statement, or of a paced loop, against the rows of its recording.

    python3 -m venv venv && venv/bin/pip install -r bench/witness/requirements.txt
    ticktax report lag.parquet --format json > lag.json
    ticktax report lag.parquet > lag.txt
    venv/bin/python bench/witness/check.py lag.parquet lag.json [--page lag.txt] [--all]

It shares no code with ticktax. It reads the columns described in docs/reference/data.md and recomputes each number
in the simplest way. With `--page` it also checks the rounded numbers of the first screen. It prints false
claims, claims that the rows cannot decide with the reason, and the number of true claims per section.
`--all` prints the true claims too. The exit code is 1 if any claim is false.
"""

import argparse
import collections
import json
import sys

import accounting
import beats
import books
import noise
import paced
import pages
import realtime
import victim
import waits
from rows import Verdicts, load


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("recording")
    parser.add_argument("statement")
    parser.add_argument("--page", help="the first screen as text")
    parser.add_argument("--all", action="store_true", help="print what is true as well")
    arguments = parser.parse_args()
    rows = load(arguments.recording)
    with open(arguments.statement, encoding="utf-8") as file:
        said = json.load(file)
    verdicts = Verdicts()
    loop = said["document"] == "pace"
    for section in (paced,) if loop else (books, waits, victim, realtime, noise, beats, accounting):
        section.check(rows, said, verdicts)
    if arguments.page and not loop:
        with open(arguments.page, encoding="utf-8") as file:
            pages.check(rows, file.read().splitlines(), verdicts)
    counts = collections.defaultdict(collections.Counter)
    for section, sentence, claimed, found, verdict in verdicts.all:
        counts[section][verdict] += 1
        if verdict != "true" or arguments.all:
            print(f"{verdict.upper():7} {section}: {sentence}: said {claimed}, rows {found}")
    print()
    for section, verdict in counts.items():
        print(f"{section:12} {verdict['true']:5} true {verdict['FALSE']:4} false {verdict['open']:4} open")
    return 1 if any(verdict["FALSE"] for verdict in counts.values()) else 0


if __name__ == "__main__":
    sys.exit(main())
