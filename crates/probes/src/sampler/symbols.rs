//! Which functions of the kernel are a softirq's or an interrupt's, by its list of symbols.

use ticktax_model::net::SampledCode;

/// What runs softirqs, by the names of several releases.
const SOFTIRQS: [&str; 2] = ["handle_softirqs", "__do_softirq"];
/// What handles an interrupt: the common part, and the local timer's.
const INTERRUPTS: [&str; 7] = [
    "handle_irq_event",
    "__handle_irq_event_percpu",
    "handle_edge_irq",
    "handle_fasteoi_irq",
    "handle_percpu_devid_irq",
    "hrtimer_interrupt",
    "__sysvec_apic_timer_interrupt",
];

/// Where these functions are: from, to, and whose they are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Functions(Vec<(u64, u64, SampledCode)>);

impl Functions {
    /// From what `/proc/kallsyms` says; `None` where it says no address, or none of a softirq.
    pub(super) fn of(symbols: &str) -> Option<Self> {
        let mut all = Vec::new();
        let mut known = Vec::new();
        for line in symbols.lines() {
            let mut words = line.split(' ');
            let (Some(address), Some(kind), Some(name)) =
                (words.next(), words.next(), words.next())
            else {
                continue;
            };
            let Ok(address) = u64::from_str_radix(address, 16) else {
                continue;
            };
            if address == 0 || !matches!(kind, "t" | "T" | "w" | "W") {
                continue;
            }
            all.push(address);
            // A compiler's variants have its word behind a dot; a module's symbols have its name behind a tab.
            let name = name.split(['.', '\t']).next().unwrap_or_default();
            if SOFTIRQS.contains(&name) {
                known.push((address, SampledCode::Softirq));
            } else if INTERRUPTS.contains(&name) {
                known.push((address, SampledCode::Irq));
            }
        }
        all.sort_unstable();
        let end = |begin: u64| {
            let next = all.partition_point(|&it| it <= begin);
            all.get(next).copied().unwrap_or(u64::MAX)
        };
        let ranges: Vec<_> = known
            .iter()
            .map(|&(begin, code)| (begin, end(begin), code))
            .collect();
        let softirqs = ranges.iter().any(|it| it.2 == SampledCode::Softirq);
        softirqs.then_some(Self(ranges))
    }

    /// Whose code a chain of functions is, the innermost first: an interrupt may be on top of a softirq, and a softirq
    /// at an interrupt's end.
    pub(super) fn code(&self, mut chain: impl Iterator<Item = u64>) -> SampledCode {
        let of = |address: u64| {
            let mut ranges = self.0.iter();
            // An address to return to may be that behind the function's last byte.
            let range = ranges.find(|(begin, end, _)| *begin < address && address <= *end);
            range.map(|it| it.2)
        };
        chain.find_map(of).unwrap_or(SampledCode::Thread)
    }
}

#[cfg(test)]
mod tests {
    use ticktax_model::net::SampledCode;

    use super::Functions;

    const SYMBOLS: &str = "\
ffffffff81000100 T do_syscall_64
ffffffff81000200 t handle_softirqs.isra.0
ffffffff81000300 T hrtimer_interrupt
ffffffff81000400 T tcp_v4_rcv
ffffffff81000500 D handle_irq_event
ffffffffc0000000 t veth_poll\t[veth]
";

    #[test]
    fn the_innermost_that_is_known_decides() {
        let functions = Functions::of(SYMBOLS).unwrap();
        let code = |chain: &[u64]| functions.code(chain.iter().copied());
        let base = 0xffff_ffff_8100_0000;
        let (call, softirq, irq, tcp) = (base + 0x120, base + 0x220, base + 0x310, base + 0x410);
        // The marks between kernel and user are no addresses.
        let kernel = u64::MAX - 127;
        assert_eq!(code(&[kernel, tcp, call]), SampledCode::Thread);
        assert_eq!(code(&[kernel, tcp, softirq, call]), SampledCode::Softirq);
        assert_eq!(code(&[kernel, softirq, irq, call]), SampledCode::Softirq);
        assert_eq!(code(&[kernel, irq, softirq, call]), SampledCode::Irq);
        assert_eq!(code(&[]), SampledCode::Thread);
    }

    #[test]
    fn where_addresses_are_hidden_nothing_is_known() {
        let hidden: Vec<String> = SYMBOLS
            .lines()
            .map(|line| format!("0000000000000000{}", &line[16..]))
            .collect();
        let hidden = hidden.join("\n");
        assert_eq!(Functions::of(&hidden), None);
        assert_eq!(Functions::of(""), None);
    }
}
