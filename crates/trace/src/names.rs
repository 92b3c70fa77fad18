//! Names that a person understands, for the numbers and addresses that the kernel hands out.

use std::collections::HashMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use ticktax_model::kernel_words::TaskDetail;
use ticktax_model::victim::OffCpuReason;

use crate::record::{detail, vector};

/// Functions of the kernel by address, from `/proc/kallsyms`.
#[derive(Debug, Default)]
pub struct KernelFunctions {
    /// Ascending addresses, each with its name's place in `names`.
    symbols: Vec<(u64, u32, u16)>,
    names: String,
}

impl KernelFunctions {
    /// Parses the text of `/proc/kallsyms`. Lines that are no functions, and addresses that are
    /// hidden (all zero, where `kptr_restrict` says so), are left out.
    pub fn parse(text: &str) -> Self {
        let mut functions = Self::default();
        for line in text.lines() {
            let mut words = line.split_ascii_whitespace();
            let (Some(address), Some(sort), Some(name)) =
                (words.next(), words.next(), words.next())
            else {
                continue;
            };
            let (Ok(address), "t" | "T" | "w" | "W") = (u64::from_str_radix(address, 16), sort)
            else {
                continue;
            };
            let (Ok(at), Ok(length)) = (
                u32::try_from(functions.names.len()),
                u16::try_from(name.len()),
            ) else {
                break;
            };
            if address != 0 {
                functions.symbols.push((address, at, length));
                functions.names.push_str(name);
            }
        }
        functions.symbols.sort_by_key(|&(address, ..)| address);
        functions
    }

    /// Whether no name is known.
    pub fn is_empty(&self) -> bool {
        self.symbols.is_empty()
    }

    /// An address in the midst of them: all others lie within 2 GiB of it.
    fn middle(&self) -> Option<u64> {
        let &(address, ..) = self.symbols.get(self.symbols.len() / 2)?;
        Some(address)
    }

    /// The function that begins at `address`; of several names for it, the first.
    ///
    /// The tracer hands out entry points only, so an address that is none is a function that was
    /// not there when the names were read, and must not pass for its neighbour.
    pub fn name(&self, address: u64) -> Option<&str> {
        let first = self.symbols.partition_point(|&(start, ..)| start < address);
        let &(_, at, length) = self.symbols[first..]
            .first()
            .filter(|(start, ..)| *start == address)?;
        Some(&self.names[at as usize..at as usize + usize::from(length)])
    }
}

/// Softirq vectors by number (`include/linux/interrupt.h`), as `/proc/softirqs` writes them.
const SOFTIRQS: [&str; 10] = [
    "HI", "TIMER", "NET_TX", "NET_RX", "BLOCK", "IRQ_POLL", "TASKLET", "SCHED", "HRTIMER", "RCU",
];

/// Everything that turns the tracer's numbers into names.
#[derive(Debug)]
pub struct Names {
    functions: KernelFunctions,
    lines: HashMap<u32, Arc<str>>,
    programs: HashMap<u32, Arc<str>>,
    proc: PathBuf,
    /// How often the functions may still be read again: it takes some tens of ms.
    readings_left: u32,
}

/// The text of a file; bytes that are no UTF-8, which a name may have, are replaced.
fn text(path: &Path) -> Option<String> {
    let bytes = fs::read(path).ok()?;
    Some(String::from_utf8_lossy(&bytes).into_owned())
}

impl Names {
    /// Reads what there is to read under `proc` (`/proc`).
    pub fn read(proc: &Path) -> Self {
        let functions = text(&proc.join("kallsyms")).unwrap_or_default();
        let interrupts = text(&proc.join("interrupts")).unwrap_or_default();
        Self {
            functions: KernelFunctions::parse(&functions),
            lines: irq_lines(&interrupts),
            programs: HashMap::new(),
            proc: proc.to_owned(),
            readings_left: 4,
        }
    }

    /// Whether the kernel lets its functions' names be seen.
    pub fn knows_functions(&self) -> bool {
        !self.functions.is_empty()
    }

    /// The kernel function's address that has these low 32 bits.
    pub(crate) fn address(&self, low: u32) -> u64 {
        // Where no address may be seen none has a name; this is in the text of x86-64.
        let middle = self.functions.middle().unwrap_or(0xffff_ffff_8100_0000);
        #[expect(clippy::cast_possible_truncation, reason = "the low bits are meant")]
        let away = low.wrapping_sub(middle as u32).cast_signed();
        middle.wrapping_add_signed(away.into())
    }

    /// The name of a span's `detail`; empty where there is none.
    pub fn detail(&mut self, address: u64) -> Arc<str> {
        match address {
            detail::NONE => "".into(),
            detail::PAGE_FAULT => TaskDetail::PageFault.name().into(),
            detail::THROTTLED => OffCpuReason::Throttled.name().into(),
            detail::RECLAIM => TaskDetail::Reclaim.name().into(),
            detail::WOKEN => OffCpuReason::Woken.name().into(),
            detail::PREEMPTED => OffCpuReason::Preempted.name().into(),
            detail::SLEEPING => OffCpuReason::Sleeping.name().into(),
            detail::DISK => OffCpuReason::Disk.name().into(),
            detail::LOCK => OffCpuReason::Lock.name().into(),
            detail::STOPPED => OffCpuReason::Stopped.name().into(),
            detail::MISSED => OffCpuReason::Missed.name().into(),
            detail::REBORN => OffCpuReason::Reborn.name().into(),
            address => self
                .function(address)
                .unwrap_or_else(|| format!("{address:#x}").into()),
        }
    }

    fn function(&mut self, address: u64) -> Option<Arc<str>> {
        if self.functions.name(address).is_none()
            && self.knows_functions()
            && self.readings_left > 0
        {
            // A module's, loaded since.
            self.readings_left -= 1;
            let text = text(&self.proc.join("kallsyms")).unwrap_or_default();
            let functions = KernelFunctions::parse(&text);
            // A process that has given up its rights since may no longer see any.
            if !functions.is_empty() {
                self.functions = functions;
            }
        }
        Some(strip_clone(self.functions.name(address)?).into())
    }

    /// The name of a softirq.
    pub fn softirq(number: u32) -> Arc<str> {
        SOFTIRQS
            .get(number as usize)
            .map_or_else(|| format!("number {number}").into(), |&name| name.into())
    }

    /// The name of an interrupt: of the vector, or of the devices on the line.
    pub fn interrupt(&mut self, number: u32) -> Arc<str> {
        if let Some(own) = number.checked_sub(vector::FIRST) {
            return vector::NAMES
                .get(own as usize)
                .map_or_else(|| format!("vector {own}").into(), |&name| name.into());
        }
        if !self.lines.contains_key(&number) {
            // A line that was set up while recording.
            let now = text(&self.proc.join("interrupts")).unwrap_or_default();
            self.lines.extend(irq_lines(&now));
            self.lines
                .entry(number)
                .or_insert_with(|| format!("irq {number}").into());
        }
        Arc::clone(&self.lines[&number])
    }

    /// The name of `process`, whose thread `tid` is called `thread`.
    pub fn program(&mut self, process: u32, tid: u32, thread: &str) -> Arc<str> {
        if tid == process {
            return thread.into();
        }
        let proc = &self.proc;
        let name = self.programs.entry(process).or_insert_with(|| {
            text(&proc.join(format!("{process}/comm")))
                .map_or_else(|| thread.into(), |name| name.trim_end().into())
        });
        Arc::clone(name)
    }

    /// Forgets the names of all programs.
    pub(crate) fn forget_programs(&mut self) {
        self.programs.clear();
    }

    /// The name of thread `tid`, while it is alive.
    pub fn thread(&self, tid: u32) -> Option<String> {
        let name = text(&self.proc.join(format!("{tid}/comm")))?;
        Some(name.trim_end().to_owned())
    }

    /// Whether thread `tid` is there, as far as it may be seen.
    pub(crate) fn is_alive(&self, tid: u32) -> bool {
        self.proc.join(tid.to_string()).exists()
    }

    /// The process of thread `tid`, while it is alive.
    pub fn process(&self, tid: u32) -> Option<u32> {
        let status = text(&self.proc.join(format!("{tid}/status")))?;
        status
            .lines()
            .find_map(|line| line.strip_prefix("Tgid:")?.trim().parse().ok())
    }
}

/// A function's name without the suffix of a compiler's clone (`foo.isra.0`, `foo.cold`).
fn strip_clone(name: &str) -> &str {
    name.split_once('.')
        .map_or(name, |(stem, _)| if stem.is_empty() { name } else { stem })
}

/// Device names by IRQ line, from the text of `/proc/interrupts`.
fn irq_lines(text: &str) -> HashMap<u32, Arc<str>> {
    let cpus = text
        .lines()
        .next()
        .unwrap_or_default()
        .split_ascii_whitespace()
        .count();
    let line = |line: &str| {
        let (label, rest) = line.split_once(':')?;
        let number = label.trim().parse().ok()?;
        // After the counts: the controller, the line's number and trigger, the devices.
        let words: Vec<&str> = rest.split_ascii_whitespace().skip(cpus).collect();
        let devices = words.get(2..).unwrap_or_default().join(" ");
        let devices = if devices.is_empty() {
            words.join(" ")
        } else {
            devices
        };
        (!devices.is_empty()).then(|| (number, devices.into()))
    };
    text.lines().skip(1).filter_map(line).collect()
}

#[cfg(test)]
mod tests {
    use super::{KernelFunctions, Names, irq_lines};

    const SYMBOLS: &str = "\
ffffffff81000000 T _stext
ffffffff81000100 t tick_nohz_handler
ffffffff81000100 t tick_nohz_alias
ffffffff81000200 d not_a_function
ffffffff81000300 t rx.isra.0\t[virtio_net]
0000000000000000 t hidden
garbage
";

    #[test]
    fn only_the_beginning_of_a_function_has_its_name() {
        let functions = KernelFunctions::parse(SYMBOLS);
        assert_eq!(
            functions.name(0xffff_ffff_8100_0100),
            Some("tick_nohz_handler")
        );
        assert_eq!(functions.name(0xffff_ffff_8100_02ff), None);
        assert_eq!(functions.name(0xffff_ffff_8100_0300), Some("rx.isra.0"));
        assert_eq!(functions.name(0x1000), None);
        assert!(KernelFunctions::parse("0000000000000000 t hidden\n").is_empty());
    }

    #[test]
    fn an_address_follows_from_its_low_bits() {
        let unknown = Names::read(std::path::Path::new("/nonexistent"));
        assert_eq!(unknown.address(0x8100_0100), 0xffff_ffff_8100_0100);
        // A module's, and one of a kernel that lies elsewhere.
        assert_eq!(unknown.address(0xc000_0001), 0xffff_ffff_c000_0001);
        let functions = "ffff800012340000 T _text\nffff800080000000 t of_a_module\n";
        let elsewhere = Names {
            functions: KernelFunctions::parse(functions),
            ..unknown
        };
        assert_eq!(elsewhere.address(0x1234_0000), 0xffff_8000_1234_0000);
        assert_eq!(elsewhere.address(0xfff0_0000), 0xffff_8000_fff0_0000);
        assert_eq!(elsewhere.address(0x0000_1000), 0xffff_8000_0000_1000);
    }

    #[test]
    fn an_irq_line_is_called_by_its_devices() {
        let lines = irq_lines(
            "           CPU0       CPU1\n\
              26:          0         14  IO-APIC   4-edge      ttyS0\n\
              36:          0      36417 PCI-MSIX-0000:00:02.0   1-edge      virtio1-req.0\n\
              19:          1          2  IO-APIC  19-fasteoi   ehci_hcd:usb1, ahci\n\
             LOC:       6658       8645   Local timer interrupts\n",
        );
        assert_eq!(&*lines[&26], "ttyS0");
        assert_eq!(&*lines[&36], "virtio1-req.0");
        assert_eq!(&*lines[&19], "ehci_hcd:usb1, ahci");
        assert_eq!(lines.len(), 3);
    }

    #[test]
    fn what_has_no_name_keeps_its_number() {
        let mut names = Names::read(std::path::Path::new("/nonexistent"));
        assert!(!names.knows_functions());
        assert_eq!(&*Names::softirq(3), "NET_RX");
        assert_eq!(&*Names::softirq(42), "number 42");
        assert_eq!(&*names.interrupt(0x10000), "local_timer");
        assert_eq!(&*names.interrupt(77), "irq 77");
        assert_eq!(&*names.detail(0x1234), "0x1234");
    }
}
