//! Helpers that the fuzz targets share.

#![forbid(unsafe_code)]

use std::path::{Path, PathBuf};

use tempfile::TempDir;
use ticktax_model::document::Document;
use ticktax_report::{Format, TextStyle, View, render};

/// Keeps libFuzzer from aborting when the Parquet library panics on damaged bytes. ticktax catches
/// these panics and turns them into errors, but libFuzzer's panic hook would abort first.
pub fn allow_caught_panics() {
    let abort = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        if !ticktax_store::parquet_file::is_decoding() {
            abort(panic);
        }
    }));
}

/// Separates the files in an input that contains several.
pub const SEPARATOR: u8 = 0x1e;

/// System files that the `proc` target replaces. The first byte of each part of the input selects
/// one of them.
pub const MACHINE_FILES: &[&str] = &[
    "proc/1/autogroup",
    "proc/1/cgroup",
    "proc/1/comm",
    "proc/1/net/udp",
    "proc/1/stat",
    "proc/1/status",
    "proc/1/task/1/sched",
    "proc/1/task/1/schedstat",
    "proc/1/task/1/stat",
    "proc/cmdline",
    "proc/cpuinfo",
    "proc/interrupts",
    "proc/irq/1/effective_affinity_list",
    "proc/loadavg",
    "proc/mounts",
    "proc/net/dev",
    "proc/net/softnet_stat",
    "proc/pressure/cpu",
    "proc/self/mountstats",
    "proc/softirqs",
    "proc/stat",
    "proc/sys/kernel/osrelease",
    "proc/sys/kernel/version",
    "proc/timer_list",
    "proc/vmstat",
    "boot/config-6",
    "etc/sysctl.d/local.conf",
    "sys/devices/system/clocksource/clocksource0/current_clocksource",
    "sys/devices/system/cpu/isolated",
    "sys/devices/system/cpu/nohz_full",
    "sys/devices/system/cpu/online",
    "sys/devices/system/cpu/possible",
    "sys/fs/cgroup/a/cpu.max",
    "sys/fs/cgroup/a/cpu.stat",
];

/// Creates a temporary directory for the files that a target reads, in memory if possible.
///
/// # Panics
/// Panics if the directory cannot be created.
pub fn scratch() -> TempDir {
    let memory = Path::new("/dev/shm");
    let made = if memory.is_dir() {
        tempfile::tempdir_in(memory)
    } else {
        tempfile::tempdir()
    };
    made.expect("a temporary folder can be made")
}

/// Writes part of a target's input to a file, and returns the file's path.
///
/// # Panics
/// Panics if the file cannot be written.
pub fn put(folder: &Path, name: &str, contents: &[u8]) -> PathBuf {
    let path = folder.join(name);
    if let Some(parent) = path.parent() {
        std::fs::create_dir_all(parent).expect("a folder can be made");
    }
    std::fs::write(&path, contents).expect("a file can be written");
    path
}

/// Renders a document in every format, as a first screen and in full.
pub fn write_down(document: &Document) {
    for format in Format::all(document.kind()) {
        for view in [View::default(), View::Full] {
            let style = TextStyle {
                view,
                ..TextStyle::default()
            };
            std::hint::black_box(render(document, format, &style));
        }
    }
}
