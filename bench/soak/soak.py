#!/usr/bin/env python3
"""Soak test of an agent with a recorder, under changing load and misbehaving scrapers.

    sudo python3 bench/soak/soak.py target/release/ticktax [--minutes 30] [--samples FILE.csv] [--keep-facts FOLDER]

The exit code is 1 if the agent fails, its accounts do not balance, or an answer to a scraper is not HTTP.
Requires only Python and, for the threads, a C compiler.
"""

import argparse
import csv
import os
import random
import re
import shutil
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time

THREADS = r"""
#include <pthread.h>
#include <stdlib.h>
#include <time.h>
static void *sleeper(void *_) {
	struct timespec tenth = { 0, 100000000 };
	for (;;)
		nanosleep(&tenth, 0);
}
int main(int argc, char **argv) {
	pthread_attr_t attr;
	pthread_t thread;
	pthread_attr_init(&attr);
	pthread_attr_setstacksize(&attr, 65536);
	for (int left = atoi(argv[1]); left; left--)
		if (pthread_create(&thread, &attr, sleeper, 0))
			return 1;
	sleeper(0);
}
"""

PIPES = """
import os
a, b = os.pipe(), os.pipe()
if os.fork():
    while True:
        os.write(a[1], b"x")
        os.read(b[0], 1)
else:
    while True:
        if not os.read(a[0], 1):
            break
        os.write(b[1], b"x")
"""


class Loads:
    """Programs that run during a phase, each in its own session so that all its processes can be killed."""

    def __init__(self, folder):
        self.running = []
        self.threads = None
        source = os.path.join(folder, "threads.c")
        with open(source, "w") as file:
            file.write(THREADS)
        program = os.path.join(folder, "ttx-threads")
        if shutil.which("cc") and subprocess.call(["cc", "-O2", "-pthread", "-o", program, source]) == 0:
            self.threads = program

    def start(self, command, nice=0):
        quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL, "stdin": subprocess.DEVNULL}
        self.running.append(subprocess.Popen(["nice", "-n", str(nice), *command], start_new_session=True, **quiet))

    def end(self):
        for child in self.running:
            try:
                os.killpg(child.pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
            child.wait()
        self.running = []

    def quiet(self):
        return 60

    def loops(self):
        for _ in range(8):
            self.start(["sh", "-c", "while :; do :; done"], nice=19)
        return 60

    def hundred(self):
        for _ in range(100):
            self.start(["sh", "-c", "while :; do :; done"], nice=19)
        return 20

    def forks(self):
        for _ in range(2):
            self.start(["sh", "-c", "while :; do /bin/true; done"], nice=5)
        return 60

    def switches(self):
        for _ in range(2):
            self.start([sys.executable, "-c", PIPES], nice=5)
        return 60

    def sleepers(self):
        if self.threads:
            self.start([self.threads, "10000"], nice=5)
        return 60


class Agent:
    def __init__(self, program, folder):
        command = [program, "agent", "--listen", "127.0.0.1:0", "--user", "nobody", "--trigger", "wait>5ms"]
        command += ["--facts", os.path.join(folder, "facts"), "--incidents", os.path.join(folder, "incidents")]
        self.said = []
        self.child = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        for line in self.child.stderr:
            self.said.append(line)
            found = re.search(r"http://([0-9.]+):(\d+)/", line)
            if found:
                self.address = (found[1], int(found[2]))
                break
        else:
            sys.exit(f"the agent ended: {''.join(self.said)}")
        self.lines = 0
        for stream, keep in ((self.child.stdout, False), (self.child.stderr, True)):
            threading.Thread(target=self.read, args=(stream, keep), daemon=True).start()

    def read(self, stream, keep):
        for line in stream:
            if keep:
                self.said.append(line)
            else:
                self.lines += 1

    def ask(self, request, patience=30, slowly=False):
        """Returns the answer, which is empty if the connection was closed without one."""
        with socket.create_connection(self.address, timeout=patience) as stream:
            answer = b""
            try:
                stream.sendall(request)
                end = time.monotonic() + 10
                while more := stream.recv(64 if slowly else 65536):
                    answer += more
                    if slowly:
                        time.sleep(0.05)
                    if slowly and time.monotonic() > end:
                        break
            except (ConnectionResetError, BrokenPipeError):
                pass
            return answer

    def metrics(self):
        """Returns the agent's metrics, summed over their labels, and how long the answer took."""
        begin = time.monotonic()
        answer = b""
        while not answer.startswith(b"HTTP/1.1 200"):
            if time.monotonic() - begin > 60:
                return {}, 60.0
            answer = self.ask(b"GET /metrics HTTP/1.1\r\n\r\n")
            if not answer.startswith(b"HTTP/1.1 200"):
                time.sleep(0.2)
        took = time.monotonic() - begin
        sums = {}
        for line in answer.decode().splitlines():
            if line.startswith("ticktax_"):
                name, value = re.match(r"(\w+)(?:\{.*\})? (\S+)", line).groups()
                sums[name] = sums.get(name, 0.0) + float(value)
        return sums, took

    def uses(self):
        """Returns the agent's resources: resident and anonymous MiB, descriptors, threads."""
        with open(f"/proc/{self.child.pid}/status") as file:
            status = dict(line.split(":", 1) for line in file)
        mib = {name: int(status[name].split()[0]) / 1024 for name in ("VmRSS", "RssAnon", "VmHWM")}
        return {**mib, "descriptors": len(os.listdir(f"/proc/{self.child.pid}/fd")), "threads": int(status["Threads"])}


class Scrapers:
    """Eight concurrent clients that send garbage or half a request, or that read too slowly."""

    def __init__(self, agent, until):
        self.agent, self.until = agent, until
        self.count = {"200": 0, "503": 0, "4xx": 0, "closed": 0, "refused": 0, "no HTTP": 0}
        self.all = [threading.Thread(target=self.run, args=(seed,), daemon=True) for seed in range(8)]
        for each in self.all:
            each.start()

    def run(self, seed):
        chance = random.Random(seed)
        while time.monotonic() < self.until:
            kind = chance.randrange(6)
            good = b"GET /metrics HTTP/1.1\r\nHost: x\r\nAccept: text/plain;q=0.5\r\n\r\n"
            slowly = False
            if kind == 0:
                request = chance.randbytes(chance.randrange(1, 20_000))
            elif kind == 1:
                request = good[: chance.randrange(len(good))]
            elif kind == 2:
                bytes_ = bytearray(good)
                for _ in range(chance.randrange(1, 5)):
                    bytes_[chance.randrange(len(bytes_))] = chance.randrange(256)
                request = bytes(bytes_)
            elif kind == 3:
                request, slowly = good, True
            elif kind == 4:
                request = b"GET /metrics HTTP/1.1\r\n" + b"X: " + b"y" * chance.randrange(20_000) + b"\r\n\r\n"
            else:
                request = good
            try:
                answer = self.agent.ask(request, slowly=slowly)
            except OSError:
                self.count["refused"] += 1
                time.sleep(0.1)
                continue
            word = answer[:12].decode(errors="replace")
            if not answer:
                self.count["closed"] += 1
            elif re.fullmatch(r"HTTP/1\.1 \d\d\d", word):
                code = word[-3:]
                self.count[code if code in self.count else "4xx"] += 1
            else:
                self.count["no HTTP"] += 1
            time.sleep(chance.random() / 50)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("program")
    parser.add_argument("--minutes", type=float, default=30)
    parser.add_argument("--samples", help="a CSV file of all samples")
    parser.add_argument("--keep-facts", help="a folder for the facts that it wrote")
    typed = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="ticktax-soak", dir="/tmp") as folder:
        os.chmod(folder, 0o755)
        loads = Loads(folder)
        try:
            code = soak(typed, folder, loads)
        finally:
            loads.end()
    sys.exit(code)


def soak(typed, folder, loads):
    agent = Agent(os.path.abspath(typed.program), folder)
    begin = time.monotonic()
    end = begin + typed.minutes * 60
    scrapers = None
    phases = [loads.quiet, loads.loops, loads.switches, loads.forks, loads.sleepers, loads.hundred]
    samples = []
    turn, next_phase, phase = 0, begin, ""
    try:
        while (now := time.monotonic()) < end and agent.child.poll() is None:
            if now >= next_phase:
                loads.end()
                phase = phases[turn % len(phases)].__name__
                next_phase = now + phases[turn % len(phases)]()
                turn += 1
            # Start after a third of the run and continue for a third, which is ten minutes of
            # thirty.
            if scrapers is None and now - begin > typed.minutes * 20:
                scrapers = Scrapers(agent, now + typed.minutes * 20)
            sums, took = agent.metrics()
            samples.append({
                "s": round(now - begin), "phase": phase, "load": os.getloadavg()[0], **agent.uses(), "scrape_s": round(took, 4),
                "cpu_s": sums.get("ticktax_own_cpu_seconds_total"), "events": sums.get("ticktax_own_events_total"),
                "incidents": sums.get("ticktax_incidents_total"), "reach_s": sums.get("ticktax_ring_reach_seconds"),
                "not_kept": sums.get("ticktax_incidents_not_kept_total"), "facts_files": sums.get("ticktax_facts_files_total"),
                "facts_errors": sums.get("ticktax_facts_write_errors_total"), "folded": sums.get("ticktax_folded_intervals_total"),
                "lost": sums.get("ticktax_lost_events_total"),
            })
            time.sleep(max(0.0, min(10.0, end - time.monotonic())))
    finally:
        loads.end()
        if agent.child.poll() is None:
            agent.child.send_signal(signal.SIGTERM)
        asked = time.monotonic()
        try:
            code = agent.child.wait(120)
        except subprocess.TimeoutExpired:
            agent.child.kill()
            code = agent.child.wait()
    ended = time.monotonic() - asked
    if typed.samples:
        with open(typed.samples, "w", newline="") as file:
            writer = csv.DictWriter(file, samples[0])
            writer.writeheader()
            writer.writerows(samples)
    time.sleep(0.5)
    said = "".join(agent.said)
    show(samples, agent, scrapers, said, code, ended)
    facts(folder, typed.keep_facts)
    answers = scrapers.count if scrapers else {}
    return 0 if code == 0 and "the accounts balance" in said and not answers.get("no HTTP") else 1


def show(samples, agent, scrapers, said, code, ended):
    third = max(len(samples) // 3, 1)
    parts = {"first third": samples[:third], "second": samples[third:-third], "last": samples[-third:]}
    print(f"| | {' | '.join(parts)} | at most |\n|---|{'--:|' * (len(parts) + 1)}")
    for name, what in (("VmRSS", "resident, MiB, median"), ("RssAnon", "of its own, MiB"), ("descriptors", "descriptors"),
                       ("threads", "threads"), ("scrape_s", "a scrape takes, s"), ("reach_s", "the rings reach back, s"), ("load", "load average")):
        cells = [f"{statistics.median(row[name] for row in part if row[name] is not None):.4g}" for part in parts.values() if part]
        most = max(row[name] for row in samples if row[name] is not None)
        print(f"| {what} | {' | '.join(cells)} | {most:.4g} |")
    first, last = samples[0], samples[-1]
    passed = last["s"] - first["s"]
    if passed:
        print(f"\n{passed} s; {100 * (last['cpu_s'] - first['cpu_s']) / passed:.3f} % of a CPU, "
              f"{(last['events'] - first['events']) / passed:.0f} events/s; peak {last['VmHWM']:.0f} MiB.")
    print(f"Incidents {last['incidents']:.0f}, lines {agent.lines}, not kept {last['not_kept']:.0f}; facts files {last['facts_files']:.0f}, "
          f"write errors {last['facts_errors']:.0f}; lost {last['lost']:.0f}, folded {last['folded']:.0f}.")
    if scrapers:
        print(f"Answers to clients that misbehave: {scrapers.count}.")
    print(f"It ended with {code} within {ended:.1f} s, and said:\n{said}")


def facts(folder, keep):
    """Returns the size of the facts files in bytes, by table and part."""
    root = os.path.join(folder, "facts")
    for table in sorted(os.listdir(root)) if os.path.isdir(root) else []:
        sizes = [os.path.getsize(os.path.join(at, name)) for at, _, names in os.walk(os.path.join(root, table)) for name in names]
        print(f"facts: {table}: {len(sizes)} files, {sum(sizes)} bytes")
    if keep and os.path.isdir(root):
        shutil.copytree(root, keep, dirs_exist_ok=True)


if __name__ == "__main__":
    main()
