//! Parses the descriptions of interrupts in `/proc/interrupts`.
//!
//! On every architecture, the text after the counts has the form `CONTROLLER NUMBER DEVICES`
//! (`show_interrupts`, `kernel/irq/proc.c`), with the trigger type (edge or level) between the
//! number and the devices. Architecture-specific interrupts are described by a sentence instead.

use std::borrow::Cow;

use crate::kernel_words::LOCAL_TIMER;

/// Label of the row for the local timer, as it appears on x86. Recordings use it on every
/// architecture, even where the timer is an ordinary interrupt line.
pub const LOCAL_TIMER_ROW: &str = "LOC";

/// Device name of the local timer on arm64 (`drivers/clocksource/arm_arch_timer.c`).
const ARM_TIMER: &str = "arch_timer";

/// Returns the devices on an interrupt line, parsed from the `description` in its row, or the
/// entire `description` if it names no device. The local timer is always called `local_timer`, even
/// where it is an ordinary interrupt line.
pub fn devices(description: &str) -> Cow<'_, str> {
    let words: Vec<&str> = description.split_ascii_whitespace().collect();
    let number = |word: &&str| word.starts_with(|c: char| c.is_ascii_digit());
    let triggered = |word: &&str| ["Level", "Edge"].contains(word) || word.starts_with('-');
    let rest = match words.get(1).filter(|word| number(word)) {
        // arm64 and some other architectures write `27 Level`; x86 writes `4-edge`.
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

/// Returns a name for an inter-processor interrupt, based on the `description` in its row.
/// Architectures such as arm64 list these interrupts in `/proc/interrupts` (`ipi_types`,
/// `arch/arm64/kernel/smp.c`). If another architecture has a tracepoint for the same interrupt,
/// that tracepoint's name is used.
pub fn between_cpus(description: &str) -> String {
    match description {
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
    fn devices_follow_the_controller_number_and_trigger() {
        for (description, expected) in [
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
            assert_eq!(devices(description), expected, "{description}");
        }
    }

    #[test]
    fn inter_processor_interrupts_are_named_after_tracepoints() {
        for (description, name) in [
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
            assert_eq!(between_cpus(description), name);
        }
    }
}
