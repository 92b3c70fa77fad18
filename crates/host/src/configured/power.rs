//! Reads frequency policies, the limit on wake-up latency, and interrupt affinities.

use std::collections::BTreeMap;
use std::fs::{self, OpenOptions};
use std::io::Read;
use std::os::unix::fs::OpenOptionsExt;

use ticktax_model::configured::{FrequencyPolicy, WakeLatency};
use ticktax_model::limitation::Unreadable;

use super::reading::Reading;

/// Maximum number of open files to check when looking for the programs that hold a device open. It
/// is enough for about ten thousand programs.
const MAX_FILES: usize = 50_000;

pub(super) fn frequency(reading: &mut Reading) -> Vec<FrequencyPolicy> {
    const FOLDER: &str = "sys/devices/system/cpu/cpufreq";
    let policies = reading
        .names(FOLDER)
        .into_iter()
        .filter(|name| name.starts_with("policy"));
    let mut read = |policy: String| {
        let mut text = |name: &str| {
            let text = reading.text(&format!("{FOLDER}/{policy}/{name}"))?;
            Some(text.trim().to_owned())
        };
        let khz = |text: Option<String>| text.and_then(|text| text.parse().ok());
        Some(FrequencyPolicy {
            cpus: text("affected_cpus")?,
            driver: text("scaling_driver").unwrap_or_default(),
            governor: text("scaling_governor")?,
            max_khz: khz(text("scaling_max_freq")),
            hardware_max_khz: khz(text("cpuinfo_max_freq")),
        })
    };
    policies.filter_map(&mut read).collect()
}

/// Reads the limit on wake-up latency from its device. Only a write requests a limit, so reading
/// changes nothing.
pub(super) fn wake_latency(reading: &mut Reading) -> Option<WakeLatency> {
    const DEVICE: &str = "dev/cpu_dma_latency";
    let path = reading.path(DEVICE);
    let mut bytes = [0; 4];
    // Don't block if the path turns out to be something other than the device.
    let opened = OpenOptions::new()
        .read(true)
        .custom_flags(libc::O_NONBLOCK)
        .open(&path);
    let mut file = match opened {
        Ok(file) => file,
        Err(error) => {
            if error.kind() == std::io::ErrorKind::PermissionDenied {
                reading.missed(DEVICE, Unreadable::NeedsRoot);
            }
            return None;
        }
    };
    file.read_exact(&mut bytes).ok()?;
    drop(file);
    Some(WakeLatency {
        micros: u32::try_from(i32::from_ne_bytes(bytes)).ok()?,
        holders: holders(reading, &format!("/{DEVICE}")),
    })
}

fn holders(reading: &mut Reading, device: &str) -> Vec<String> {
    let mut holders = Vec::new();
    let mut looked = 0;
    for process in fs::read_dir(reading.path("proc"))
        .into_iter()
        .flatten()
        .flatten()
    {
        let pid = process.file_name().to_string_lossy().into_owned();
        if !pid.bytes().all(|byte| byte.is_ascii_digit()) {
            continue;
        }
        let files = fs::read_dir(process.path().join("fd"))
            .into_iter()
            .flatten()
            .flatten();
        for file in files {
            looked += 1;
            if looked > MAX_FILES {
                reading.missed("proc", Unreadable::TooManyOpenFiles);
                return holders;
            }
            if fs::read_link(file.path()).is_ok_and(|target| target.as_os_str() == device) {
                let name = fs::read_to_string(process.path().join("comm")).unwrap_or_default();
                holders.push(format!("{} ({pid})", name.trim_end()));
                break;
            }
        }
    }
    holders
}

/// Up to this number of interrupts, their affinities are always read. Each interrupt takes two
/// files, so on machines with more, they are read only if they are sure to matter.
const FEW_INTERRUPTS: usize = 256;

/// Returns the CPUs that each device interrupt can be routed to. Returns nothing if there are more
/// than [`FEW_INTERRUPTS`] interrupts, unless `even_many` is set.
pub(super) fn interrupt_cpus(reading: &mut Reading, even_many: bool) -> BTreeMap<String, String> {
    let mut cpus = BTreeMap::new();
    let numbers = reading.names("proc/irq");
    if numbers.len() > FEW_INTERRUPTS && !even_many {
        return cpus;
    }
    for number in numbers {
        if !number.bytes().all(|byte| byte.is_ascii_digit()) {
            continue;
        }
        let effective = reading.text(&format!("proc/irq/{number}/effective_affinity_list"));
        let list = effective
            .filter(|list| !list.trim().is_empty())
            .or_else(|| reading.text(&format!("proc/irq/{number}/smp_affinity_list")));
        if let Some(list) = list {
            cpus.insert(number, list.trim().to_owned());
        }
    }
    cpus
}
