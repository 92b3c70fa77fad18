//! Tests that malformed files are never fatal: they are skipped or reported as a limitation.

use std::fs;
use std::time::Duration;

use ticktax_analysis::findings::{Measured, judge};
use ticktax_host::Proc;
use ticktax_model::limitation::{Limitation, Unreadable};
use ticktax_model::machine::Machine;
use ticktax_probes::clock::now;

use super::tree::{header, put};

/// All files that settings are read from.
const ALL: [&str; 22] = [
    "boot/config-6.1.0",
    "dev/cpu_dma_latency",
    "dev/kmsg",
    "etc/fstab",
    "etc/ld.so.preload",
    "etc/sysctl.conf",
    "etc/sysctl.d/1.conf",
    "proc/77/cmdline",
    "proc/77/environ",
    "proc/77/maps",
    "proc/cmdline",
    "proc/fs/nfsd/exports",
    "proc/irq/24/smp_affinity_list",
    "proc/mounts",
    "proc/sys/kernel/x",
    "proc/timer_list",
    "proc/vmstat",
    "sys/block/sda/device/scsi_disk/0:0:0:0/cache_type",
    "sys/block/sda/queue/write_cache",
    "sys/devices/system/cpu/cpufreq/policy0/affected_cpus",
    "sys/devices/system/cpu/isolated",
    "sys/kernel/mm/ksm/run",
];

fn machine_of(fill: impl Fn(&str) -> Vec<u8>) -> Machine {
    let root = ticktax_fixture::scratch();
    put(root.path(), "proc/sys/kernel/osrelease", b"6.1.0\n");
    for path in ALL {
        put(root.path(), path, &fill(path));
    }
    let machine = Proc::at(root.path()).machine();
    // Evaluating the settings must not fail, either.
    judge(&header(machine.clone()), Measured::default());
    machine
}

#[test]
fn junk_is_skipped() {
    for seed in 1..60u64 {
        machine_of(|path| {
            let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ path.len() as u64;
            let byte = |_| {
                state = state
                    .wrapping_mul(6_364_136_223_846_793_005)
                    .wrapping_add(1);
                // Half of the bytes are characters with a meaning in one of the file formats.
                let byte = u8::try_from(state >> 56).unwrap();
                let letters = b"\n =,.*/-:;\"0123456789abk\\#";
                if byte < 128 {
                    letters[usize::from(byte) % letters.len()]
                } else {
                    byte
                }
            };
            (0..4_096).map(byte).collect()
        });
    }
    machine_of(|_| Vec::new());
    machine_of(|_| vec![0; 100_000]);
}

#[test]
fn a_huge_file_is_read_in_part_and_reported() {
    let begin = now();
    let machine = machine_of(|path| match path {
        "etc/sysctl.conf" => b"kernel.x = 1\n".repeat(800_000),
        _ => b"0\n".to_vec(),
    });
    assert!((now() - begin).as_secs_f64() < Duration::from_secs(20).as_secs_f64());
    let unread = &machine.configured.unread;
    let is_reported = unread.iter().any(|limitation| {
        is_unread(
            limitation,
            "/etc/sysctl.conf",
            &Unreadable::TooLong {
                read_bytes: 1 << 20,
            },
        )
    });
    assert!(is_reported, "{unread:?}");
    assert_eq!(machine.configured.sysctl[0].key, "kernel.x");
}

#[test]
fn a_folder_in_place_of_a_file_is_reported_and_a_missing_file_is_not() {
    let root = ticktax_fixture::scratch();
    fs::create_dir_all(root.path().join("etc/fstab")).unwrap();
    let machine = Proc::at(root.path()).machine();
    let unread = &machine.configured.unread;
    assert_eq!(unread.len(), 1, "{unread:?}");
    assert!(
        is_unread(&unread[0], "/etc/fstab", &Unreadable::NotAFile),
        "{unread:?}"
    );
}

fn is_unread(limitation: &Limitation, path: &str, why: &Unreadable) -> bool {
    matches!(
        limitation,
        Limitation::SettingsUnread { paths, reason, .. }
            if reason == why && paths.iter().any(|other| other == path)
    )
}
