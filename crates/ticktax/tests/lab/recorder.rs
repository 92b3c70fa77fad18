//! The flight recorder in a guest.

use std::path::Path;
use std::time::Duration;

use ticktax_lab::kernel::{Cache, Wanted, find};
use ticktax_lab::qemu::{Clock, GuestSettings};
use ticktax_lab::{Run, guest};

/// What the guest is to do. Where nothing else runs, something still takes the kernel longer than 10 µs.
const RECORD: [&str; 9] = [
    "record",
    "--trigger",
    "stretch>10us",
    "--trigger",
    "wait>10us",
    "--for",
    "2s",
    "--dir",
    "/tmp/incidents",
];

/// The programs as the recorder has them, on a kernel that they were not built on: their ring, the names
/// of threads and the triggers are in use only there.
pub(crate) fn the_recorder_keeps_a_window_on(kernel: &str) {
    let set = std::env::var_os;
    let cache = Cache::of_user(set("XDG_CACHE_HOME"), set("HOME")).unwrap();
    let wanted: Wanted = kernel.parse().unwrap();
    let kernel = find(&wanted, &cache, &mut |_| {}).unwrap();
    let run = Run {
        kernel: &kernel,
        program: Path::new(env!("CARGO_BIN_EXE_ticktax")),
        arguments: &RECORD.map(str::to_owned),
        programs: &[],
        accepted: &[],
        settings: GuestSettings {
            cmdline: "",
            cpus: 1,
            memory: 1_024,
            clock: Clock::Icount { shift: 2 },
            limit: Duration::from_mins(5),
            count: false,
        },
        scratch: &std::env::temp_dir(),
        console: None,
    };
    let outcome = run.start(&|| false, &mut |_| {}).unwrap();
    let said = |name: &str| {
        let bytes = outcome.file(name).unwrap_or_default();
        String::from_utf8_lossy(bytes).into_owned()
    };
    let (incidents, remarks) = (said(guest::STANDARD_OUTPUT), said(guest::STANDARD_ERROR));
    // A window was kept, and told of.
    assert!(incidents.contains(" UTC  1  "), "{incidents}{remarks}");
}
