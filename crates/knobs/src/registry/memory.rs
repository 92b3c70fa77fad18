//! Settings for memory: reclaim, dirty pages, huge pages and same-page merging.

use ticktax_model::knob::KnobScope::Machine;

use crate::knob::{Knob, knob};
use crate::mechanism::DIRTY_LIMIT;
use crate::mechanism::Mechanism::{Choice, DirtyLimit, File};
use crate::values::Values::{Form, Integer, Offered};

const SYSCTL: &str = "admin-guide/sysctl/vm.rst";
const THP: &str = "admin-guide/mm/transhuge.rst";
const KSM: &str = "admin-guide/mm/ksm.rst";

pub(super) static KNOBS: [Knob; 20] = [
    knob(
        "vm.stat_interval",
        Machine,
        File("proc/sys/vm/stat_interval"),
        Integer(1, 3_600),
    )
    .unit("s")
    .words(
        "interval at which each CPU adds its memory counters to the global ones",
        "A longer interval interrupts each CPU less often with a work item, but /proc/vmstat lags \
         behind.",
    )
    .settles_in_ms(1000)
    .from("2.6.22 and later", SYSCTL),
    knob(
        "vm.swappiness",
        Machine,
        File("proc/sys/vm/swappiness"),
        Integer(0, 200),
    )
    .words(
        "preference for swapping out programs' memory over dropping file cache; at most 100 before \
         5.8",
        "Lower keeps programs in memory, but files are read from disk again.",
    )
    .from("2.6 and later", SYSCTL),
    knob(
        "vm.dirty_limit",
        Machine,
        DirtyLimit {
            ratio: "proc/sys/vm/dirty_ratio",
            bytes: "proc/sys/vm/dirty_bytes",
        },
        Form(DIRTY_LIMIT),
    )
    .words(
        "amount of dirty data at which writers must wait for the disk",
        "A low limit makes waits short but frequent, and sync fast. A high limit absorbs bursts, \
         but makes sync and crashes costlier.",
    )
    .careful("A very low limit stalls every program that writes to files.")
    .settles_in_ms(1000)
    .from("2.6.29 and later; only the percentage before", SYSCTL),
    knob(
        "vm.dirty_background_limit",
        Machine,
        DirtyLimit {
            ratio: "proc/sys/vm/dirty_background_ratio",
            bytes: "proc/sys/vm/dirty_background_bytes",
        },
        Form(DIRTY_LIMIT),
    )
    .words(
        "amount of dirty data at which the kernel starts background writes",
        "A low limit starts writes early and keeps them steady. A high limit never writes \
         short-lived data.",
    )
    .settles_in_ms(1000)
    .from("2.6.29 and later; only the percentage before", SYSCTL),
    knob(
        "vm.dirty_writeback_centisecs",
        Machine,
        File("proc/sys/vm/dirty_writeback_centisecs"),
        Integer(0, 360_000),
    )
    .unit("centiseconds")
    .words(
        "interval at which the kernel writes old dirty data to disk; 0 disables",
        "A longer interval wakes disks and CPUs less often, but a power failure loses more.",
    )
    .careful("At 0, data is written only on memory pressure or sync.")
    .settles_in_ms(1000)
    .from("2.6 and later", SYSCTL),
    knob(
        "vm.dirty_expire_centisecs",
        Machine,
        File("proc/sys/vm/dirty_expire_centisecs"),
        Integer(1, 3_600_000),
    )
    .unit("centiseconds")
    .words(
        "age at which dirty data is written to disk",
        "A higher age batches writes or avoids them, but a power failure loses more.",
    )
    .settles_in_ms(1000)
    .from("2.6 and later", SYSCTL),
    knob(
        "vm.vfs_cache_pressure",
        Machine,
        File("proc/sys/vm/vfs_cache_pressure"),
        Integer(1, 10_000),
    )
    .words(
        "preference for reclaiming dentries and inodes over file cache; 100 is neutral",
        "Lower keeps directories in memory, which leaves less for file data.",
    )
    .careful("Far above 100, reclaim spends time searching for objects that do not exist.")
    .from("2.6 and later", SYSCTL),
    knob(
        "vm.min_free_kbytes",
        Machine,
        File("proc/sys/vm/min_free_kbytes"),
        Integer(1_024, 16_777_216),
    )
    .unit("KiB")
    .words(
        "memory kept free for interrupts and for reclaim itself",
        "A larger reserve leaves memory for bursts of packets; a smaller one leaves more to \
         programs.",
    )
    .dangerous(
        "Too large a reserve makes the kernel kill programs at once; too small a reserve can \
         deadlock the machine.",
    )
    .from("2.6 and later", SYSCTL),
    knob(
        "vm.watermark_scale_factor",
        Machine,
        File("proc/sys/vm/watermark_scale_factor"),
        Integer(1, 3_000),
    )
    .unit("0.01 %")
    .words(
        "distance between kswapd's start and stop watermarks, as a share of a node's memory",
        "A wider distance starts kswapd early, so programs rarely reclaim directly, but leaves \
         more memory unused.",
    )
    .from("4.6 and later", SYSCTL),
    knob(
        "vm.compaction_proactiveness",
        Machine,
        File("proc/sys/vm/compaction_proactiveness"),
        Integer(0, 100),
    )
    .words(
        "how aggressively kcompactd prepares huge pages in advance",
        "Higher makes huge pages available immediately, but kcompactd uses CPU time and moves \
         programs' memory.",
    )
    .from("5.9 and later", SYSCTL),
    knob(
        "vm.zone_reclaim_mode",
        Machine,
        File("proc/sys/vm/zone_reclaim_mode"),
        Integer(0, 7),
    )
    .words(
        "whether local memory is reclaimed before a remote node is used: bits 1 reclaim, 2 write, \
         4 swap",
        "Memory stays local, but programs reclaim while other nodes have free memory.",
    )
    .careful("File cache is dropped although memory is free elsewhere.")
    .from("2.6.16 and later", SYSCTL),
    knob(
        "vm.page-cluster",
        Machine,
        File("proc/sys/vm/page-cluster"),
        Integer(0, 10),
    )
    .unit("log₂ pages")
    .words(
        "number of pages read from swap at a time",
        "Fewer pages make a single fault short; more make better use of a slow disk seek.",
    )
    .from("2.6 and later", SYSCTL),
    knob(
        "thp.enabled",
        Machine,
        Choice("sys/kernel/mm/transparent_hugepage/enabled"),
        Offered,
    )
    .words(
        "which programs get transparent huge pages by default",
        "always reduces TLB misses, but first faults take longer and memory use grows.",
    )
    .settles_in_ms(1000)
    .from("2.6.38 and later", THP),
    knob(
        "thp.defrag",
        Machine,
        Choice("sys/kernel/mm/transparent_hugepage/defrag"),
        Offered,
    )
    .words(
        "whether a page fault waits while a huge page is assembled",
        "always provides huge pages at the price of stalls; defer leaves the work to kernel \
         threads.",
    )
    .from(
        "2.6.38 and later; defer since 4.6, defer+madvise since 4.11",
        THP,
    ),
    knob(
        "thp.shmem_enabled",
        Machine,
        Choice("sys/kernel/mm/transparent_hugepage/shmem_enabled"),
        Offered,
    )
    .words(
        "whether shared memory gets huge pages",
        "Fewer TLB misses, but longer first faults and more memory.",
    )
    .from("4.8 and later", THP),
    knob(
        "thp.scan_sleep",
        Machine,
        File("sys/kernel/mm/transparent_hugepage/khugepaged/scan_sleep_millisecs"),
        Integer(0, 86_400_000),
    )
    .unit("ms")
    .words(
        "pause between two scans of khugepaged",
        "A longer pause uses less CPU time and holds locks less, but delays huge pages.",
    )
    .settles_in_ms(1000)
    .from("2.6.38 and later", THP),
    knob(
        "thp.scan_pages",
        Machine,
        File("sys/kernel/mm/transparent_hugepage/khugepaged/pages_to_scan"),
        Integer(1, 1_000_000),
    )
    .unit("pages")
    .words(
        "number of pages that khugepaged scans at a time",
        "Fewer pages keep each scan short, but delay huge pages.",
    )
    .settles_in_ms(1000)
    .from("2.6.38 and later", THP),
    knob(
        "ksm.run",
        Machine,
        File("sys/kernel/mm/ksm/run"),
        Integer(0, 2),
    )
    .words(
        "whether equal pages are merged: 0 stops, 1 merges, 2 stops and splits merged pages",
        "Similar guests need less memory, but ksmd uses CPU time and writes to merged pages are \
         slow.",
    )
    .careful("At 2, all merged pages take up memory again immediately.")
    .settles_in_ms(1000)
    .from("2.6.32 and later", KSM),
    knob(
        "ksm.sleep",
        Machine,
        File("sys/kernel/mm/ksm/sleep_millisecs"),
        Integer(0, 86_400_000),
    )
    .unit("ms")
    .words(
        "pause between two scans of ksmd",
        "A longer pause uses less CPU time, but delays merging.",
    )
    .settles_in_ms(1000)
    .from("2.6.32 and later", KSM),
    knob(
        "ksm.pages",
        Machine,
        File("sys/kernel/mm/ksm/pages_to_scan"),
        Integer(1, 1_000_000),
    )
    .unit("pages")
    .words(
        "number of pages that ksmd scans at a time",
        "Fewer pages keep each scan short, but delay merging.",
    )
    .settles_in_ms(1000)
    .from("2.6.32 and later", KSM),
];
