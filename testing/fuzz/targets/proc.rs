//! Reads system files below `/proc` and `/sys`, including text that programs can choose, such as
//! names, cgroups and mount points.

#![no_main]

use std::sync::LazyLock;

use libfuzzer_sys::fuzz_target;
use tempfile::TempDir;
use ticktax_fuzz::{MACHINE_FILES, SEPARATOR, put, scratch};
use ticktax_host::{Proc, throttling, untraced_interrupts, world};
use ticktax_model::{Cpu, Nanos};

static MACHINE: LazyLock<TempDir> = LazyLock::new(scratch);

fuzz_target!(|bytes: &[u8]| {
    let root = MACHINE.path();
    let mut written = Vec::new();
    for part in bytes.split(|&byte| byte == SEPARATOR) {
        if let Some((&which, contents)) = part.split_first() {
            let name = MACHINE_FILES[usize::from(which) % MACHINE_FILES.len()];
            written.push(put(root, name, contents));
        }
    }
    read(&Proc::at(root));
    drop(throttling(&root.join("sys/fs/cgroup/a")));
    for file in written {
        drop(std::fs::remove_file(file));
    }
});

fn read(machine: &Proc) {
    let facts = machine.machine();
    std::hint::black_box((world(&facts), machine.refreshed(&facts)));
    let before = machine.counters(Nanos(0));
    let after = machine.counters(Nanos(1_000_000_000));
    std::hint::black_box(untraced_interrupts(&before, &after, Cpu(0)));
    std::hint::black_box((
        machine.activity(),
        machine.autogroups(),
        machine.context_switches(),
        machine.cpu_cgroup(1),
        machine.cpu_times(1, 16),
        machine.idle_exits(Cpu(0)),
        machine.idle_times(),
        machine.is_alive(1),
        machine.mitigations(),
        machine.pressure(),
        machine.process_of(1),
        machine.processes_named("x"),
    ));
    std::hint::black_box((
        machine.program(1),
        machine.room_for_cpus(),
        machine.runnable_threads(),
        machine.shares_by_session(1),
        machine.special_policies(),
        machine.steal(),
        machine.thread_usage(1, 1),
        machine.threads_of(1),
        machine.times_of_cpus(),
        machine.udp_sockets(&[1]),
        machine.usage(&[1]),
    ));
}
