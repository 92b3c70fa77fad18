//! Memory: reclaim, dirty pages, huge pages, same-page merging.

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
        "how often a CPU adds its counts of memory to the machine's",
        "Longer, a work item less often interrupts each CPU; /proc/vmstat lags behind.",
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
        "how readily memory of programs is swapped out, rather than that of files dropped; to 100 before 5.8",
        "Lower, programs keep their memory; files are read from the disk again.",
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
        "how much may be written to files before the writer has to wait for the disk",
        "Lower, waits are short and often, and a sync is short; higher, bursts are absorbed, and a sync or a crash costs more.",
    )
    .careful("Very low, all who write to files are held up.")
    .settles_in_ms(1000)
    .from("2.6.29 and later, the share alone before", SYSCTL),
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
        "how much may be written to files before the kernel begins to write it to the disk",
        "Lower, writing begins early and is even; higher, what is soon deleted is never written.",
    )
    .settles_in_ms(1000)
    .from("2.6.29 and later, the share alone before", SYSCTL),
    knob(
        "vm.dirty_writeback_centisecs",
        Machine,
        File("proc/sys/vm/dirty_writeback_centisecs"),
        Integer(0, 360_000),
    )
    .unit("centiseconds")
    .words(
        "how often the kernel writes old data of files to the disk; 0 is never",
        "Longer, disks and CPUs are woken less often; a power failure costs more.",
    )
    .careful("At 0, data is written only when memory or a sync asks for it.")
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
        "how old data of files gets before it is written to the disk",
        "Longer, more is written at once, or never; a power failure costs more.",
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
        "how readily names and inodes are dropped, beside the data of files; 100 is alike",
        "Lower, folders are walked without the disk; less memory is left for data.",
    )
    .careful("Far above 100, reclaim looks for objects that there are none of.")
    .from("2.6 and later", SYSCTL),
    knob(
        "vm.min_free_kbytes",
        Machine,
        File("proc/sys/vm/min_free_kbytes"),
        Integer(1_024, 16_777_216),
    )
    .unit("KiB")
    .words(
        "how much memory is kept free for interrupts, and for reclaim itself",
        "More, bursts of packets find memory; less, programs have more.",
    )
    .dangerous("Too much kills programs at once, too little can deadlock the machine.")
    .from("2.6 and later", SYSCTL),
    knob(
        "vm.watermark_scale_factor",
        Machine,
        File("proc/sys/vm/watermark_scale_factor"),
        Integer(1, 3_000),
    )
    .unit("0.01 %")
    .words(
        "how far apart the marks are at which kswapd wakes up and goes to sleep, of a node's memory",
        "Farther, kswapd begins early and programs rarely reclaim by themselves; more memory is left free.",
    )
    .from("4.6 and later", SYSCTL),
    knob(
        "vm.compaction_proactiveness",
        Machine,
        File("proc/sys/vm/compaction_proactiveness"),
        Integer(0, 100),
    )
    .words(
        "how hard kcompactd works before a program asks for huge pages",
        "Higher, huge pages are there at once; kcompactd takes CPU time and moves memory of programs.",
    )
    .from("5.9 and later", SYSCTL),
    knob(
        "vm.zone_reclaim_mode",
        Machine,
        File("proc/sys/vm/zone_reclaim_mode"),
        Integer(0, 7),
    )
    .words(
        "whether memory of the own node is reclaimed before another node's is taken: bits 1, 2 write, 4 swap",
        "Memory stays near; programs reclaim while others have memory free.",
    )
    .careful("File data is dropped although there is memory.")
    .from("2.6.16 and later", SYSCTL),
    knob(
        "vm.page-cluster",
        Machine,
        File("proc/sys/vm/page-cluster"),
        Integer(0, 10),
    )
    .unit("log₂ pages")
    .words(
        "how many pages are read from swap at once",
        "Fewer, a single fault is short; more, a disk's long seek is worth it.",
    )
    .from("2.6 and later", SYSCTL),
    knob(
        "thp.enabled",
        Machine,
        Choice("sys/kernel/mm/transparent_hugepage/enabled"),
        Offered,
    )
    .words(
        "which programs get huge pages without asking",
        "always has fewer misses of the TLB; first faults take longer, and memory grows.",
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
        "whether a fault waits until a huge page was put together",
        "always gives huge pages at the price of stalls; defer leaves the work to kernel threads.",
    )
    .from("2.6.38 and later; defer since 4.6, defer+madvise since 4.11", THP),
    knob(
        "thp.shmem_enabled",
        Machine,
        Choice("sys/kernel/mm/transparent_hugepage/shmem_enabled"),
        Offered,
    )
    .words(
        "whether shared memory gets huge pages",
        "Fewer misses of the TLB, beside longer first faults and more memory.",
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
        "how long khugepaged sleeps between two looks at memory",
        "Longer, it takes less CPU time and locks; small pages become huge ones later.",
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
        "how many pages khugepaged looks at at once",
        "Fewer, its stretches are short; small pages become huge ones later.",
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
        "whether equal pages are merged: 0 stops, 1 merges, 2 stops and parts them",
        "Guests that are alike need less memory; ksmd takes CPU time, and a write to a merged page is slow.",
    )
    .careful("At 2, everything that was merged takes memory again at once.")
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
        "how long ksmd sleeps between two looks at memory",
        "Longer, it takes less CPU time; equal pages are merged later.",
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
        "how many pages ksmd looks at at once",
        "Fewer, its stretches are short; equal pages are merged later.",
    )
    .settles_in_ms(1000)
    .from("2.6.32 and later", KSM),
];
