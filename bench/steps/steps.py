#!/usr/bin/env python3
"""Counts the instructions of one context switch by function of the tracer's C source.

    python3 -m venv venv && venv/bin/pip install unicorn==2.1.4
    sudo venv/bin/python bench/steps/steps.py -- target/release/ticktax audit --for 20s --keep sums

It starts the command, copies the compiled machine code of the program on `sched_switch` from the kernel
(`--program` names another program), and ends the command. Then it runs the code in an emulator with private
memory, for two threads that switch to each other every 5 us. The table lists every instruction under the
C function of its line, inlined or not. It excludes the kernel's helpers, above all the clock, and the kernel's
code before and after the program. The figures depend on this machine's kernel and are reproducible.
"""

import argparse
import collections
import pathlib
import re
import signal
import subprocess
import sys
import time

from unicorn import UC_ARCH_X86, UC_HOOK_CODE, UC_HOOK_MEM_FETCH_UNMAPPED, UC_HOOK_MEM_READ, UC_MODE_64, Uc
from unicorn import UC_HOOK_MEM_READ_UNMAPPED, UC_HOOK_MEM_WRITE_UNMAPPED, UC_TLB_VIRTUAL
from unicorn.x86_const import UC_CPU_X86_HASWELL, UC_X86_REG_RAX, UC_X86_REG_RDI, UC_X86_REG_RIP, UC_X86_REG_RSP

from jitted import Jitted, descriptors

PAGE = 4096
BPF = pathlib.Path(__file__).parents[2] / "crates" / "trace" / "bpf"
CONTEXT, STACK, END = 0x10_0000_0000, 0x20_0000_0000, 0x30_0000_0000
THREADS = 0x40_0000_0000, 0x50_0000_0000
TIDS = 0x1001, 0x1002
# State flags of the tracer (`enum` in record.h): it records, or it also follows a program's threads
# and their system calls.
RECORDING, FOLLOWING = 1, 1 | 2 | 8
# Number of switches before the one to count. By then, accounting has started and both threads have
# sums.
BEFORE = 8
STEP_NS = 5_000

# Values to place in memory that the programs read: pattern of the C line that reads it, bytes,
# value.
FILLED = [
    (re.compile(r"running = here->control->running"), 8, lambda machine: machine.flags),
    (re.compile(r"here->control->until"), 8, lambda machine: 1 << 62),
    (re.compile(r"->__state\b"), 4, lambda machine: 1),  # TASK_INTERRUPTIBLE
    (re.compile(r"\bsum_mask\b"), 4, lambda machine: 255),
    (re.compile(r"plan->limits\["), 8, lambda machine: 1 << 62),
    (re.compile(r"> ring_mask\b"), 4, lambda machine: (1 << 16) - 1),
    (re.compile(r"<< ring_order\b"), 4, lambda machine: 16),
    # For a program that runs between two switches that another program sees.
    (re.compile(r"state->opened <= OPENING"), 8, lambda machine: 2),
    (re.compile(r"state->thread != \(__u64\)task"), 8, lambda machine: THREADS[machine.running]),
]
# The C line that reads a thread's number also reads its flags, which get the same value. None of
# the flags that matter is set.
READS_TID = re.compile(r"->t?g?pid\b")


def functions_of(file):
    """Returns the functions of a C file, with their first lines."""
    found, name = [], None
    for number, line in enumerate((BPF / file).read_text().splitlines(), 1):
        head = re.match(r"[a-z_].*?\b(\w+)\([^;]*$", line)
        if head and not line.startswith(("#", "struct {")):
            name = head[1]
            found.append((number, name))
    return found


class Machine:
    """The emulator with a program loaded."""

    def __init__(self, jitted, flags):
        self.jitted = jitted
        self.flags = flags
        self.now = 1_000_000_000_000
        self.running = 0
        self.trace = None
        self.helpers = 0
        self.last = jitted.entry
        self.uc = Uc(UC_ARCH_X86, UC_MODE_64)
        self.uc.ctl_set_cpu_model(UC_CPU_X86_HASWELL)
        # The kernel's addresses exceed the emulator's physical address space.
        self.uc.ctl_tlb_mode(UC_TLB_VIRTUAL)
        self.mapped = set()
        for begin, code in jitted.functions:
            self.map(begin, len(code))
            self.uc.mem_write(begin, code)
        self.map(STACK - 64 * PAGE, 65 * PAGE)
        self.map(END, PAGE)
        unmapped = UC_HOOK_MEM_READ_UNMAPPED | UC_HOOK_MEM_WRITE_UNMAPPED
        self.uc.hook_add(unmapped, lambda uc, access, at, size, *_: self.map(at, size))
        self.uc.hook_add(UC_HOOK_MEM_FETCH_UNMAPPED, lambda uc, access, at, *_: self.returns(at))
        self.uc.hook_add(UC_HOOK_MEM_READ, self.on_read)
        self.uc.hook_add(UC_HOOK_CODE, self.on_instruction)

    def map(self, at, size):
        for page in range(at // PAGE, (at + size - 1) // PAGE + 1):
            if page not in self.mapped:
                self.mapped.add(page)
                self.uc.mem_map(page * PAGE, PAGE)
        return True

    def returns(self, at):
        """Makes a kernel function return at once."""
        self.map(at, 1)
        self.uc.mem_write(at // PAGE * PAGE, b"\xc3" * PAGE)
        return True

    def on_read(self, uc, access, at, size, *_):
        rip = uc.reg_read(UC_X86_REG_RIP)
        if not self.jitted.is_own(rip):
            return
        text = self.jitted.line(rip).text
        for pattern, bytes_read, value in FILLED:
            if size == bytes_read and pattern.search(text):
                uc.mem_write(at, value(self).to_bytes(size, "little"))
        for thread, tid in zip(THREADS, TIDS):
            if thread <= at < thread + 16 * PAGE and size == 4 and READS_TID.search(text):
                uc.mem_write(at, tid.to_bytes(4, "little"))

    def on_instruction(self, uc, at, size, *_):
        if self.jitted.is_own(at):
            self.last = at
            if self.trace is not None:
                self.trace.append(at)
            return
        # A jump to a kernel function is a tail call, so return.
        if self.uc.mem_read(self.last, 1) != b"\xe8":
            return
        text = self.jitted.line(self.last).text
        value = 0
        if "bpf_ktime_get_ns" in text:
            value = self.now
        elif "bpf_get_current_task_btf" in text:
            value = THREADS[self.running]
        self.helpers += self.trace is not None
        uc.reg_write(UC_X86_REG_RAX, value)

    def run(self, arguments):
        """Runs the program once."""
        self.map(CONTEXT, PAGE)
        for place, argument in enumerate(arguments):
            self.uc.mem_write(CONTEXT + 8 * place, argument.to_bytes(8, "little"))
        self.uc.reg_write(UC_X86_REG_RDI, CONTEXT)
        self.uc.reg_write(UC_X86_REG_RSP, STACK)
        self.uc.mem_write(STACK, END.to_bytes(8, "little"))
        self.uc.emu_start(self.jitted.entry, END)


def taken(command, program):
    """Returns the compiled program, read from the kernel while the command runs."""
    child = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        for _ in range(300):
            found = descriptors(program)
            # More programs may still be loading.
            if found:
                time.sleep(0.5)
                return Jitted(found[-1])
            if child.poll() is not None:
                raise SystemExit(f"the command ended before there was a program on {program}")
            time.sleep(0.1)
        raise SystemExit(f"there is no program on {program}")
    finally:
        child.send_signal(signal.SIGINT)
        child.wait()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--program", default="sched_switch")
    parser.add_argument("--lines", action="store_true", help="each line of C, too")
    parser.add_argument("--follow", action="store_true", help="as if the tracer followed other threads")
    parser.add_argument("command", nargs="+")
    asked = parser.parse_args()
    jitted = taken(asked.command, asked.program)
    machine = Machine(jitted, FOLLOWING if asked.follow else RECORDING)
    for number in range(BEFORE + 1):
        machine.trace = [] if number == BEFORE else None
        machine.now += STEP_NS
        machine.running = number % 2
        leaves, comes = THREADS[number % 2], THREADS[1 - number % 2]
        is_switch = asked.program == "sched_switch"
        machine.run([0, leaves, comes] if is_switch else [comes, 0, 0])
    print_steps(jitted, machine, asked.lines)


def print_steps(jitted, machine, each_line):
    """Prints a table of functions, in the order in which they are first executed."""
    functions = {}
    steps, lines = collections.Counter(), collections.Counter()
    for at in machine.trace:
        line = jitted.line(at)
        if line.file not in functions:
            functions[line.file] = functions_of(line.file)
        names = [name for begin, name in functions[line.file] if begin <= line.number]
        # Line 0 means that the line is unknown, so the instruction belongs to the previous
        # function.
        step = names[-1] if names else last
        steps[step] += 1
        lines[step, line.number, line.text] += 1
        last = step
    print("| step | instructions |\n| --- | --: |")
    for step, count in steps.items():
        print(f"| `{step}` | {count} |")
        if each_line:
            for (its, number, text), of_line in lines.items():
                if its == step:
                    print(f"| | {of_line:4} {number}: {text} |")
    print(f"| all | {len(machine.trace)} |")
    print(f"\nand {machine.helpers} calls of the kernel's helpers, which are not in it")


if __name__ == "__main__":
    sys.exit(main())
