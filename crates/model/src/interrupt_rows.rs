//! Rows of `/proc/interrupts`, and what they are about.
//!
//! What a row says behind its counts is, on every architecture, `CONTROLLER NUMBER DEVICES`, with words on
//! how the line is triggered in between (`show_interrupts`, `kernel/irq/proc.c`), but for an
//! architecture's own rows, which are a sentence.

use std::borrow::Cow;

use crate::kernel_words::LOCAL_TIMER;

/// The label of the local timer's row, as x86 has it; where the timer is a line like others, its row
/// is called so in recordings.
pub const LOCAL_TIMER_ROW: &str = "LOC";

/// What arm64 calls the device of its local timer (`drivers/clocksource/arm_arch_timer.c`).
const ARM_TIMER: &str = "arch_timer";

/// The devices on the line of a row, by what the row says behind its counts; all of it where it names
/// none. The local timer is called `local_timer`, as where it is no line.
pub fn devices(said: &str) -> Cow<'_, str> {
    let words: Vec<&str> = said.split_ascii_whitespace().collect();
    let number = |word: &&str| word.starts_with(|c: char| c.is_ascii_digit());
    let triggered = |word: &&str| ["Level", "Edge"].contains(word) || word.starts_with('-');
    let rest = match words.get(1).filter(|word| number(word)) {
        // arm64 and others: `27 Level`; x86: `4-edge`.
        Some(_) => {
            let from = words.iter().skip(2).take_while(|word| triggered(word));
            &words[2 + from.count()..]
        }
        None => words.get(2..).unwrap_or_default(),
    };
    match rest {
        [] => Cow::Owned(words.join(" ")),
        [ARM_TIMER] => Cow::Borrowed(LOCAL_TIMER),
        devices => Cow::Owned(devices.join(" ")),
    }
}

/// The name of an interrupt by which CPUs call each other, by what its row says where these are lines
/// (arm64's `ipi_types`, `arch/arm64/kernel/smp.c`): that of the tracepoint that other architectures have
/// for it, where one has.
pub fn between_cpus(said: &str) -> String {
    match said {
        "Rescheduling interrupts" => "reschedule".to_owned(),
        "Function call interrupts" => "call_function".to_owned(),
        other => {
            let stem = other
                .trim_end_matches(" interrupts")
                .trim_end_matches(" NMIs");
            stem.to_ascii_lowercase()
                .replace([' ', '-'], "_")
                .replace(['(', ')'], "")
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{between_cpus, devices};

    #[test]
    fn devices_stand_behind_the_controller_its_number_and_the_trigger() {
        for (said, devices_there) in [
            ("IO-APIC 4-edge ttyS0", "ttyS0"),
            (
                "IO-APIC 19-fasteoi ehci_hcd:usb1, ahci",
                "ehci_hcd:usb1, ahci",
            ),
            (
                "PCI-MSIX-0000:00:02.0 1-edge virtio1-req.0",
                "virtio1-req.0",
            ),
            ("GICv3 27 Level arch_timer", "local_timer"),
            ("GIC-0 30 Level arch_timer", "local_timer"),
            ("GICv3 27 Level kvm guest vtimer", "kvm guest vtimer"),
            ("ITS-MSI 507904 Edge nvme0q0", "nvme0q0"),
            ("GICv3 34 Level -fasteoi rtc-pl031", "rtc-pl031"),
            ("GICv3 23 Level", "GICv3 23 Level"),
            ("Local timer interrupts", "interrupts"),
            ("", ""),
        ] {
            assert_eq!(devices(said), devices_there, "{said}");
        }
    }

    #[test]
    fn calls_between_cpus_are_named_as_where_they_have_tracepoints() {
        for (said, name) in [
            ("Rescheduling interrupts", "reschedule"),
            ("Function call interrupts", "call_function"),
            ("IRQ work interrupts", "irq_work"),
            ("Timer broadcast interrupts", "timer_broadcast"),
            ("CPU stop NMIs", "cpu_stop"),
            (
                "CPU stop (for crash dump) interrupts",
                "cpu_stop_for_crash_dump",
            ),
            ("CPU wake-up interrupts", "cpu_wake_up"),
        ] {
            assert_eq!(between_cpus(said), name);
        }
    }
}
