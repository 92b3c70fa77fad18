//! Reads the machine's settings (boot parameters, `sysctl`, `fstab`, policies) along with the
//! values that are in effect.
//!
//! This module does not judge the settings. It reports files that it cannot read, and ignores files
//! that do not exist.

mod boot;
mod durability;
pub(crate) mod fstab;
mod kernel_log;
mod offloads;
mod power;
mod reading;
mod steering;
mod sysctl;
mod timers;

use std::collections::BTreeMap;
use std::fs;

use ticktax_model::configured::Configured;

use self::reading::Reading;
use super::Proc;
use super::counters::user_hz;

/// Short files that are stored unchanged, up to 1 MiB each.
const FILES: [&str; 23] = [
    "etc/ld.so.preload",
    "proc/fs/nfsd/exports",
    "proc/sys/kernel/nmi_watchdog",
    "proc/sys/kernel/sched_rt_period_us",
    "proc/sys/kernel/sched_rt_runtime_us",
    "proc/sys/kernel/watchdog",
    "proc/sys/net/core/netdev_budget",
    "proc/sys/net/core/netdev_budget_usecs",
    "proc/sys/net/core/rmem_default",
    "proc/sys/net/core/rmem_max",
    "proc/sys/vm/dirty_bytes",
    "proc/sys/vm/dirty_ratio",
    "sys/devices/system/clocksource/clocksource0/available_clocksource",
    "sys/devices/system/cpu/isolated",
    "sys/devices/system/cpu/nohz_full",
    "sys/devices/system/cpu/smt/control",
    "sys/kernel/mm/ksm/pages_sharing",
    "sys/kernel/mm/ksm/pages_to_scan",
    "sys/kernel/mm/ksm/run",
    "sys/kernel/mm/ksm/sleep_millisecs",
    "sys/kernel/mm/transparent_hugepage/defrag",
    "sys/kernel/mm/transparent_hugepage/enabled",
    "sys/module/kvm/parameters/halt_poll_ns",
];

impl Proc {
    /// Returns all settings that this process may read. `config` is the kernel's build
    /// configuration.
    pub(super) fn configured(&self, config: Option<&str>) -> Configured {
        let mut reading = Reading::new(&self.root);
        let mut files = BTreeMap::new();
        for path in FILES {
            if let Some(text) = reading.text(path) {
                files.insert(path.to_owned(), text.trim().to_owned());
            }
        }
        let isolates = [
            "sys/devices/system/cpu/isolated",
            "sys/devices/system/cpu/nohz_full",
        ]
        .iter()
        .any(|path| {
            files
                .get(*path)
                .is_some_and(|cpus| !cpus.is_empty() && cpus != "(null)")
        });
        let (fstab, other_mounts) = fstab::read(&mut reading);
        Configured {
            user_hz: u32::try_from(user_hz()).ok(),
            build: boot::build_options(config),
            timers: timers::read(&mut reading),
            log: kernel_log::read(&mut reading),
            sysctl: sysctl::read(&mut reading),
            fstab,
            other_mounts,
            write_caches: durability::write_caches(&mut reading),
            fsync_off: durability::fsync_off(&mut reading),
            frequency: power::frequency(&mut reading),
            wake_latency: power::wake_latency(&mut reading),
            steered_queues: steering::queues(&mut reading),
            offloads_off: offloads::off(&reading),
            interrupt_cpus: power::interrupt_cpus(&mut reading, isolates),
            irqbalance: isolates.then(|| self.runs("irqbalance")),
            files,
            unread: reading.unread(),
        }
    }

    fn runs(&self, name: &str) -> bool {
        let processes = fs::read_dir(self.root.join("proc"))
            .into_iter()
            .flatten()
            .flatten();
        processes.into_iter().any(|entry| {
            let is_process = entry
                .file_name()
                .to_string_lossy()
                .bytes()
                .all(|b| b.is_ascii_digit());
            is_process
                && fs::read(entry.path().join("comm"))
                    .is_ok_and(|comm| comm.trim_ascii_end() == name.as_bytes())
        })
    }
}
