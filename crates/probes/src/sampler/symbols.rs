//! Finds, in the kernel's symbol list, the functions that handle softirqs and interrupts.

use ticktax_model::net::SampledCode;

/// Functions that run softirqs. The name depends on the kernel release.
const SOFTIRQS: [&str; 2] = ["handle_softirqs", "__do_softirq"];
/// Functions that handle interrupts: the generic ones, and those for the local timer.
const INTERRUPTS: [&str; 7] = [
    "handle_irq_event",
    "__handle_irq_event_percpu",
    "handle_edge_irq",
    "handle_fasteoi_irq",
    "handle_percpu_devid_irq",
    "hrtimer_interrupt",
    "__sysvec_apic_timer_interrupt",
];

/// Address ranges of the functions that handle softirqs and interrupts: start, end, and the kind of
/// code.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Functions(Vec<(u64, u64, SampledCode)>);

impl Functions {
    /// Parses the contents of `/proc/kallsyms`. Returns `None` if addresses are hidden, or if the
    /// list contains no function that runs softirqs.
    pub(super) fn parse(symbols: &str) -> Option<Self> {
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
            // A dot starts a suffix added by the compiler, and a tab starts a module name.
            let name = name.split(['.', '\t']).next().unwrap_or_default();
            if SOFTIRQS.contains(&name) {
                known.push((address, SampledCode::Softirq));
            } else if INTERRUPTS.contains(&name) {
                known.push((address, SampledCode::Irq));
            }
        }
        all.sort_unstable();
        let end = |begin: u64| {
            let next = all.partition_point(|&address| address <= begin);
            all.get(next).copied().unwrap_or(u64::MAX)
        };
        let ranges: Vec<_> = known
            .iter()
            .map(|&(begin, code)| (begin, end(begin), code))
            .collect();
        let softirqs = ranges
            .iter()
            .any(|&(_, _, code)| code == SampledCode::Softirq);
        softirqs.then_some(Self(ranges))
    }

    /// Classifies a call chain, which starts with the innermost function. The innermost known
    /// function decides, because an interrupt can occur in a softirq, and a softirq can run at the
    /// end of an interrupt.
    pub(super) fn code(&self, mut chain: impl Iterator<Item = u64>) -> SampledCode {
        let code_at = |address: u64| {
            let mut ranges = self.0.iter();
            // A return address can be one byte past the function's end.
            let range = ranges.find(|(begin, end, _)| *begin < address && address <= *end);
            range.map(|&(_, _, code)| code)
        };
        chain.find_map(code_at).unwrap_or(SampledCode::Thread)
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
    fn the_innermost_known_function_decides() {
        let functions = Functions::parse(SYMBOLS).unwrap();
        let code = |chain: &[u64]| functions.code(chain.iter().copied());
        let base = 0xffff_ffff_8100_0000;
        let (call, softirq, irq, tcp) = (base + 0x120, base + 0x220, base + 0x310, base + 0x410);
        // The chain also contains markers between kernel and user code. They are not addresses.
        let kernel = u64::MAX - 127;
        assert_eq!(code(&[kernel, tcp, call]), SampledCode::Thread);
        assert_eq!(code(&[kernel, tcp, softirq, call]), SampledCode::Softirq);
        assert_eq!(code(&[kernel, softirq, irq, call]), SampledCode::Softirq);
        assert_eq!(code(&[kernel, irq, softirq, call]), SampledCode::Irq);
        assert_eq!(code(&[]), SampledCode::Thread);
    }

    #[test]
    fn hidden_addresses_are_not_used() {
        let hidden: Vec<String> = SYMBOLS
            .lines()
            .map(|line| format!("0000000000000000{}", &line[16..]))
            .collect();
        let hidden = hidden.join("\n");
        assert_eq!(Functions::parse(&hidden), None);
        assert_eq!(Functions::parse(""), None);
    }
}
