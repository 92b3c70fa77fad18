//! Reads the CPUs that a receive queue passes its packets to (receive packet steering, RPS).

use ticktax_model::configured::SteeredQueue;
use ticktax_model::{Cpu, CpuList};

use super::reading::Reading;

/// Maximum number of queues to check. A device can have one queue per CPU.
const MAX_QUEUES: usize = 4_096;

pub(super) fn queues(reading: &mut Reading) -> Vec<SteeredQueue> {
    const FOLDER: &str = "sys/class/net";
    let mut found = Vec::new();
    let mut looked = 0;
    for device in reading.names(FOLDER) {
        let folder = format!("{FOLDER}/{device}/queues");
        for queue in reading.names(&folder) {
            if !queue.starts_with("rx-") || looked == MAX_QUEUES {
                continue;
            }
            looked += 1;
            let text = reading.text(&format!("{folder}/{queue}/rps_cpus"));
            let cpus = text.and_then(|text| mask(text.trim())).unwrap_or_default();
            if !cpus.is_empty() {
                found.push(SteeredQueue {
                    device: device.clone(),
                    queue,
                    cpus,
                });
            }
        }
    }
    found
}

/// Parses a CPU mask in the kernel's format: 32-bit hexadecimal words, highest word first.
fn mask(text: &str) -> Option<CpuList> {
    let words: Option<Vec<u32>> = text
        .split(',')
        .rev()
        .map(|word| u32::from_str_radix(word, 16).ok())
        .collect();
    let cpus = (0..).zip(words?).flat_map(|(place, word): (u32, u32)| {
        let bits = (0..32).filter(move |bit| word & (1 << bit) != 0);
        bits.map(move |bit| Cpu(32 * place + bit))
    });
    Some(cpus.collect())
}

#[cfg(test)]
mod tests {
    use super::mask;

    #[test]
    fn a_mask_is_read_word_by_word() {
        let read = |text| mask(text).map(|cpus| cpus.to_string());
        assert_eq!(read("00000003").as_deref(), Some("0-1"));
        assert_eq!(read("1,80000001").as_deref(), Some("0,31-32"));
        assert_eq!(read("0").as_deref(), Some(""));
        assert_eq!(read("x"), None);
        assert_eq!(read(""), None);
    }
}
