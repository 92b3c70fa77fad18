//! Block devices.

use ticktax_model::knob::KnobScope::Disk;

use crate::knob::{Knob, knob};
use crate::mechanism::Mechanism::{Choice, File};
use crate::values::Values::{Integer, Offered};

const QUEUE: &str = "ABI/stable/sysfs-block";

pub(super) static KNOBS: [Knob; 6] = [
    knob(
        "disk.scheduler",
        Disk,
        Choice("sys/block/{}/queue/scheduler"),
        Offered,
    )
    .words(
        "I/O scheduler of a disk",
        "`none` uses the least CPU time. `mq-deadline` and `kyber` limit waits. `bfq` shares the \
         disk fairly between programs.",
    )
    .also(&["disk.requests", "disk.writeback_latency"])
    .from("2.6.10 and later", "block/switching-sched.rst"),
    knob(
        "disk.requests",
        Disk,
        File("sys/block/{}/queue/nr_requests"),
        Integer(1, 65_536),
    )
    .words(
        "maximum number of queued requests of a disk",
        "A short queue keeps waits short. A long queue gives the scheduler more to choose from.",
    )
    .from("2.6 and later", QUEUE),
    knob(
        "disk.read_ahead",
        Disk,
        File("sys/block/{}/queue/read_ahead_kb"),
        Integer(0, 1_048_576),
    )
    .unit("KiB")
    .words(
        "how far a file is read ahead",
        "More speeds up reading long files, but wastes I/O on small reads.",
    )
    .from("2.6 and later", QUEUE),
    knob(
        "disk.writeback_latency",
        Disk,
        File("sys/block/{}/queue/wbt_lat_usec"),
        Integer(0, 10_000_000),
    )
    .unit("µs")
    .words(
        "target read latency, beyond which background writes are throttled; 0 disables throttling",
        "A lower target keeps reads from waiting behind writes, but slows writes down.",
    )
    .from("4.10 and later, with CONFIG_BLK_WBT", QUEUE),
    knob(
        "disk.completion_cpu",
        Disk,
        File("sys/block/{}/queue/rq_affinity"),
        Integer(0, 2),
    )
    .words(
        "CPU that completes a request: 0 the interrupt's, 1 one near the submitter's, 2 the \
         submitter's",
        "The submitter's CPU has warm caches. The interrupt's CPU saves an inter-processor \
         interrupt.",
    )
    .from("2.6.28 and later; 2 since 3.1", QUEUE),
    knob(
        "disk.no_merges",
        Disk,
        File("sys/block/{}/queue/nomerges"),
        Integer(0, 2),
    )
    .words(
        "whether adjacent requests are merged: 0 always, 1 only where cheap, 2 never",
        "Less merging saves CPU time for random reads, but long files need more requests.",
    )
    .from("2.6.25 and later", QUEUE),
];
