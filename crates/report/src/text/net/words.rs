//! Names and number formats for the pages about traffic.

use ticktax_model::net::{Protocol, TrafficAccount};

use super::super::page::tied;

/// Formats a rate in bit/s.
pub(in crate::text) fn bits(rate: f64) -> String {
    tied(scaled(
        rate,
        &["bit/s", "kbit/s", "Mbit/s", "Gbit/s", "Tbit/s"],
    ))
}

/// Formats a number of bytes. Units are powers of ten, as they are for rates.
pub(in crate::text) fn size(bytes: u64) -> String {
    tied(scaled(bytes as f64, &["B", "kB", "MB", "GB", "TB"]))
}

/// Formats a number with three digits and a suitable unit.
fn scaled(number: f64, units: &[&str]) -> String {
    let mut number = number;
    let mut units = units.iter();
    let mut unit = units.next().copied().unwrap_or_default();
    for larger in units {
        // Use the next unit for a number that would be printed as 1000.
        if number < 999.5 {
            break;
        }
        number /= 1_000.0;
        unit = larger;
    }
    format!("{} {unit}", digits(number))
}

/// Formats a number of any size with about three significant digits.
pub(in crate::text) fn fraction(number: f64) -> String {
    if number > 0.0 && number < 0.000_1 {
        return "<0.0001".to_owned();
    }
    match number {
        0.0 => "0".to_owned(),
        n if n < 0.009_995 => format!("{n:.4}"),
        n if n < 0.999_5 => format!("{n:.3}"),
        n => digits(n),
    }
}

fn digits(number: f64) -> String {
    match number {
        n if n < 9.995 => format!("{n:.2}"),
        n if n < 99.95 => format!("{n:.1}"),
        n => format!("{n:.0}"),
    }
}

/// Returns the display name of an account. `tx` stands for the cost of sending, and `rx` for the
/// cost of receiving.
pub(super) fn account(account: TrafficAccount) -> &'static str {
    match account {
        TrafficAccount::SenderUser => "tx: sender, user",
        TrafficAccount::SenderCall => "tx: sender, system calls",
        TrafficAccount::ReceiverUser => "rx: receiver, user",
        TrafficAccount::ReceiverCall => "rx: receiver, system calls",
        TrafficAccount::SoftirqReceive => "softirq NET_RX",
        TrafficAccount::SoftirqSend => "softirq NET_TX",
        TrafficAccount::SoftirqPaced => "softirq HRTIMER, TASKLET",
        TrafficAccount::SoftirqOther => "other softirqs",
        TrafficAccount::Irq => "interrupts, including the tick",
        TrafficAccount::KernelThread => "kernel threads",
        TrafficAccount::Program => "other programs",
        TrafficAccount::Tool => "ticktax itself",
        TrafficAccount::Steal => "the hypervisor",
        TrafficAccount::Soaker => "idle, used by the soak probe",
        TrafficAccount::Idle => "idle",
        TrafficAccount::Unexplained => "unexplained",
    }
}

/// Returns the name of what is counted as a packet.
pub(super) fn packet(protocol: Protocol) -> &'static str {
    match protocol {
        Protocol::Tcp => "TCP segment sent",
        Protocol::Udp => "datagram sent",
    }
}

#[cfg(test)]
mod tests {
    use super::{bits, fraction, size};

    #[test]
    fn numbers_have_three_digits_and_a_unit() {
        let plain = |text: String| text.replace('\u{a0}', " ");
        assert_eq!(plain(bits(6.214e9)), "6.21 Gbit/s");
        assert_eq!(plain(bits(999_600.0)), "1.00 Mbit/s");
        assert_eq!(plain(bits(0.0)), "0.00 bit/s");
        assert_eq!(plain(size(131_072)), "131 kB");
        assert_eq!(fraction(0.0), "0");
        assert_eq!(fraction(0.000_01), "<0.0001");
        assert_eq!(fraction(0.012_34), "0.012");
        assert_eq!(fraction(0.001_234), "0.0012");
        assert_eq!(fraction(1_234.6), "1235");
    }
}
