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
        "in which order a disk is asked",
        "none costs least CPU time; mq-deadline and kyber bound waits, bfq is fair to programs.",
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
        "how many requests may wait at a disk",
        "Fewer, nobody waits behind many; more, the scheduler has more to choose from.",
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
        "how much of a file is read before it is asked for",
        "More, long files are read fast; small reads drag along what nobody wants.",
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
        "how long a read may take before writing in the background is slowed down; 0 is never",
        "Shorter, reads do not wait behind writes; writing takes longer.",
    )
    .from("4.10 and later, with CONFIG_BLK_WBT", QUEUE),
    knob(
        "disk.completion_cpu",
        Disk,
        File("sys/block/{}/queue/rq_affinity"),
        Integer(0, 2),
    )
    .words(
        "where a request ends: 0 at the interrupt's CPU, 1 at one near the CPU that asked, 2 at that CPU",
        "At the asker's CPU its caches are warm; at the interrupt's one interrupt between CPUs is saved.",
    )
    .from("2.6.28 and later; 2 since 3.1", QUEUE),
    knob(
        "disk.no_merges",
        Disk,
        File("sys/block/{}/queue/nomerges"),
        Integer(0, 2),
    )
    .words(
        "whether neighbouring requests become one: 0 always, 1 where that is cheap, 2 never",
        "Less merging costs less CPU time for random reads; long files need more requests.",
    )
    .from("2.6.25 and later", QUEUE),
];
