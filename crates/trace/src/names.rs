//! Resolves the kernel's numbers and addresses to readable names.

use std::collections::HashMap;
use std::fs::{self, File};
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use ticktax_model::interrupt_rows::{between_cpus, devices};
use ticktax_model::kernel_words::{IN_CALL, TaskDetail};
use ticktax_model::victim::{OffCpu, OffCpuReason};

use crate::calls;
use crate::code_files::CodeFiles;
use crate::places::{Place, Places};
use crate::record::{
    CALL_SHIFT, RELEASE_SHIFT, SAMPLE_IN_USER, SAMPLE_STACK_SHIFT, STACK_SHIFT, SpanRecord, detail,
    kind, vector,
};
use crate::user_code::UserCode;
use crate::wait_objects::Objects;
use crate::waited::Wakers;

pub(crate) mod locks;
mod noted;

/// Addresses and names of the kernel's functions, from `/proc/kallsyms`.
#[derive(Debug, Default)]
pub struct KernelFunctions {
    /// The address of each function, and the offset and length of its name in `names`. Sorted by
    /// address.
    symbols: Vec<(u64, u32, u16)>,
    names: String,
}

impl KernelFunctions {
    /// Reads a file in the format of `/proc/kallsyms`, line by line because the text is several
    /// times larger than the result. Returns an empty table if the file cannot be read.
    fn from_file(path: &Path) -> Self {
        File::open(path).map_or_else(|_| Self::default(), |file| Self::read(BufReader::new(file)))
    }

    /// Parses text in the format of `/proc/kallsyms`. Skips symbols that are not functions. Also
    /// skips addresses that are 0 because `kptr_restrict` hides them.
    pub fn read(mut text: impl BufRead) -> Self {
        let mut functions = Self::default();
        let mut line = Vec::new();
        while text.read_until(b'\n', &mut line).is_ok_and(|read| read > 0) {
            let words = String::from_utf8_lossy(&line);
            if functions.add(&words).is_none() {
                break;
            }
            line.clear();
        }
        functions.symbols.sort_by_key(|&(address, ..)| address);
        functions.symbols.shrink_to_fit();
        functions.names.shrink_to_fit();
        functions
    }

    /// Adds the function that a line describes. Ignores other lines. Returns `None` if the table is
    /// full.
    fn add(&mut self, line: &str) -> Option<()> {
        let mut words = line.split_ascii_whitespace();
        let (Some(address), Some(sort), Some(name)) = (words.next(), words.next(), words.next())
        else {
            return Some(());
        };
        let (Ok(address), "t" | "T" | "w" | "W") = (u64::from_str_radix(address, 16), sort) else {
            return Some(());
        };
        let at = u32::try_from(self.names.len()).ok()?;
        let length = u16::try_from(name.len()).ok()?;
        if address != 0 {
            self.symbols.push((address, at, length));
            self.names.push_str(name);
        }
        Some(())
    }

    /// Returns whether no functions are known.
    pub fn is_empty(&self) -> bool {
        self.symbols.is_empty()
    }

    /// Returns an address in the middle of the kernel's functions. All functions are within 2 GiB
    /// of it. Returns `None` if no functions are known.
    fn middle(&self) -> Option<u64> {
        let &(address, ..) = self.symbols.get(self.symbols.len() / 2)?;
        Some(address)
    }

    /// Returns the first name of the function that starts at `address`.
    ///
    /// The tracer emits only the addresses at which functions start. If no function starts exactly
    /// at `address`, the function was loaded after the table was read. The result is then `None`,
    /// so that the function is not confused with its neighbour.
    pub fn name(&self, address: u64) -> Option<&str> {
        let first = self.symbols.partition_point(|&(start, ..)| start < address);
        let &(_, at, length) = self.symbols[first..]
            .first()
            .filter(|(start, ..)| *start == address)?;
        Some(&self.names[at as usize..at as usize + usize::from(length)])
    }

    /// Maximum length of a function, in bytes. If the nearest function starts further before an
    /// address than this, an unknown function in between contains the address.
    const MAX_LENGTH: u64 = 1 << 16;

    /// Returns the first name of the function that contains `address`, without the suffix of a copy
    /// made by the compiler.
    fn containing(&self, address: u64) -> Option<&str> {
        let after = self
            .symbols
            .partition_point(|&(start, ..)| start <= address);
        let &(start, ..) = self.symbols[..after].last()?;
        let is_near = address - start < Self::MAX_LENGTH;
        Some(strip_clone(self.name(start).filter(|_| is_near)?))
    }
}

/// Names of the softirqs by number (`include/linux/interrupt.h`), spelled as in `/proc/softirqs`.
const SOFTIRQS: [&str; 10] = [
    "HI", "TIMER", "NET_TX", "NET_RX", "BLOCK", "IRQ_POLL", "TASKLET", "SCHED", "HRTIMER", "RCU",
];

/// Names for the numbers in the tracer's records.
#[derive(Debug)]
pub struct Names {
    functions: KernelFunctions,
    lines: HashMap<u32, Arc<str>>,
    programs: HashMap<u32, Arc<str>>,
    /// Where threads wait, according to the stacks that the tracer has seen.
    places: Places,
    pub(crate) user_code: UserCode,
    pub(crate) wakers: Wakers,
    pub(crate) objects: Objects,
    /// Variables of the kernel. Read when a thread first waits for a lock.
    variables: Option<locks::Variables>,
    proc: PathBuf,
    /// Remaining number of times that the functions may be read again. One read takes a few tens of
    /// ms.
    readings_left: u32,
}

/// Reads a text file. Invalid UTF-8 is replaced, because names may contain it. Returns `None` if
/// the file cannot be read.
fn text(path: &Path) -> Option<String> {
    let bytes = fs::read(path).ok()?;
    Some(String::from_utf8_lossy(&bytes).into_owned())
}

impl Names {
    /// Reads the names that are available under the directories `proc` and `sys`, which are
    /// normally `/proc` and `/sys`.
    pub fn read(proc: &Path, sys: &Path) -> Self {
        let interrupts = text(&proc.join("interrupts")).unwrap_or_default();
        let mut lines = irq_lines(&interrupts);
        lines.extend(inter_processor_interrupts(
            &interrupts,
            &sys.join("kernel/irq"),
        ));
        Self {
            functions: KernelFunctions::from_file(&proc.join("kallsyms")),
            lines,
            programs: HashMap::new(),
            places: Places::default(),
            user_code: UserCode::new(proc),
            wakers: Wakers::default(),
            objects: Objects::new(proc, sys),
            variables: None,
            proc: proc.to_owned(),
            readings_left: 4,
        }
    }

    /// Resolves stacks with `places` from now on.
    pub(crate) fn set_places(&mut self, places: Places) {
        self.places = places;
    }

    /// Returns whether the kernel reveals the names of its functions.
    pub fn knows_functions(&self) -> bool {
        !self.functions.is_empty()
    }

    /// Returns the address of the kernel function whose low 32 bits are `low`.
    pub(crate) fn address(&self, low: u32) -> u64 {
        // If no addresses are visible, functions have no names anyway. The default address lies in
        // the kernel text of x86-64.
        let middle = self.functions.middle().unwrap_or(0xffff_ffff_8100_0000);
        #[expect(clippy::cast_possible_truncation, reason = "only the low bits count")]
        let offset = low.wrapping_sub(middle as u32).cast_signed();
        middle.wrapping_add_signed(offset.into())
    }

    /// Returns the name for a span's `detail`, which is usually the address of a function. The name
    /// is empty if the span has no detail.
    pub fn detail(&mut self, address: u64) -> Arc<str> {
        match address {
            detail::NONE => "".into(),
            detail::PAGE_FAULT => TaskDetail::PageFault.name().into(),
            detail::RECLAIM => TaskDetail::Reclaim.name().into(),
            small if reason(small).is_some() => reason(small).map_or("", OffCpuReason::name).into(),
            call if (detail::CALL..2 * detail::CALL).contains(&call) => {
                format!("{IN_CALL}{}", calls::name(call - detail::CALL)).into()
            }
            address => self
                .function(address)
                .unwrap_or_else(|| format!("{address:#x}").into()),
        }
    }

    /// Returns the detail of a wait row. `moved` says whether the thread then ran on another CPU,
    /// and `lock` describes the kernel lock that it waited for, or is 0.
    pub(crate) fn wait(&mut self, detail: u64, moved: bool, lock: u64) -> Arc<str> {
        let Some(reason) = reason(detail & REASON) else {
            return self.detail(detail);
        };
        let call = calls::name_of_state(detail >> CALL_SHIFT & CALL);
        let lock = self.lock(lock);
        let key = |shift| (detail >> shift & STACK) as u32;
        let functions = &self.functions;
        let name = |address| functions.containing(address);
        let place = key(STACK_SHIFT).checked_sub(1);
        let place = place.and_then(|key| self.places.get(key, name).cloned());
        let place = place.unwrap_or_default();
        let release = key(RELEASE_SHIFT).checked_sub(1);
        let release = release.and_then(|key| self.places.release(key, name));
        let off = OffCpu {
            moved,
            ..off_cpu(reason, &place, release)
        };
        let syscall = call
            .as_deref()
            .filter(|_| off.reason != OffCpuReason::Frozen);
        let syscall = syscall.or(off.syscall);
        // If the end of an earlier contention was missed, its lock is still noted.
        let lock = lock.as_deref().filter(|_| place.is_in_lock());
        let off = OffCpu {
            syscall,
            lock,
            ..off
        };
        off.to_string().into()
    }

    /// Returns the code that a sample found, in the folded form of a
    /// [`Stack`](ticktax_model::recording::Stack). It is empty if it is unknown.
    pub(crate) fn sample(&mut self, record: &SpanRecord) -> Arc<str> {
        let key = u32::try_from(record.dur >> SAMPLE_STACK_SHIFT).unwrap_or(0);
        let is_softirq = record.kind == kind::SOFTIRQ;
        let functions = &self.functions;
        let kernel = key.checked_sub(1).and_then(|key| {
            let name = |address| functions.containing(address);
            self.places.interrupted(key, is_softirq, name)
        });
        let address = record.dur & ((1 << SAMPLE_STACK_SHIFT) - 1);
        match kernel {
            Some(kernel) if kernel.is_empty() && record.kind == kind::TASK && address != 0 => {
                let code = self.user_code.at(record.tgid, record.comm, address);
                code.to_string().into()
            }
            kernel => kernel.unwrap_or_default(),
        }
    }

    /// Returns the files whose code was sampled.
    pub(crate) fn code_files(&self) -> &CodeFiles {
        self.user_code.files()
    }

    /// Returns the files whose code was sampled, and forgets them.
    pub(crate) fn take_code_files(&mut self) -> CodeFiles {
        self.user_code.take_files()
    }

    /// Returns the code that a sample of a profile found, as [`Names::sample`] does.
    pub(crate) fn profiled(&mut self, record: &SpanRecord) -> Arc<str> {
        let key = u32::try_from(record.dur >> SAMPLE_STACK_SHIFT).unwrap_or(0);
        let address = record.dur & ((1 << SAMPLE_STACK_SHIFT) - 1);
        if key as usize == SAMPLE_IN_USER {
            let code = self.user_code.at(record.tgid, record.comm, address);
            return code.to_string().into();
        }
        let is_softirq = record.kind == kind::SOFTIRQ;
        let functions = &self.functions;
        let kernel = key.checked_sub(1).and_then(|key| {
            let name = |address| functions.containing(address);
            self.places.profiled(key, is_softirq, name)
        });
        kernel.unwrap_or_default()
    }

    fn function(&mut self, address: u64) -> Option<Arc<str>> {
        if self.functions.name(address).is_none()
            && self.knows_functions()
            && self.readings_left > 0
        {
            // The function probably belongs to a module that was loaded after the last read.
            self.readings_left -= 1;
            let functions = KernelFunctions::from_file(&self.proc.join("kallsyms"));
            // If the process has dropped its rights, it may no longer see any functions.
            if !functions.is_empty() {
                self.functions = functions;
            }
        }
        Some(strip_clone(self.functions.name(address)?).into())
    }

    /// Returns the name of the softirq with this number.
    pub fn softirq(number: u32) -> Arc<str> {
        SOFTIRQS
            .get(number as usize)
            .map_or_else(|| format!("number {number}").into(), |&name| name.into())
    }

    /// Returns the name of an interrupt. It is the name of its vector, or the names of the devices
    /// on its line.
    pub fn interrupt(&mut self, number: u32) -> Arc<str> {
        if let Some(own) = number.checked_sub(vector::FIRST) {
            return vector::NAMES
                .get(own as usize)
                .map_or_else(|| format!("vector {own}").into(), |&name| name.into());
        }
        if !self.lines.contains_key(&number) {
            // The interrupt line may have been set up after the last read.
            let now = text(&self.proc.join("interrupts")).unwrap_or_default();
            self.lines.extend(irq_lines(&now));
            self.lines
                .entry(number)
                .or_insert_with(|| format!("irq {number}").into());
        }
        Arc::clone(&self.lines[&number])
    }

    /// Returns the name of `process`. `thread` is the name of its thread `tid`.
    pub fn program(&mut self, process: u32, tid: u32, thread: &str) -> Arc<str> {
        if tid == process {
            // The process may have exec'd another program. Its other threads belong to that
            // program.
            if self
                .programs
                .get(&process)
                .is_some_and(|name| **name != *thread)
            {
                self.programs.remove(&process);
            }
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

    /// Returns the name of thread `tid`, or `None` if the thread does not exist.
    pub fn thread(&self, tid: u32) -> Option<String> {
        let name = text(&self.proc.join(format!("{tid}/comm")))?;
        Some(name.trim_end().to_owned())
    }

    /// Returns whether thread `tid` exists and is visible to this process.
    pub(crate) fn is_alive(&self, tid: u32) -> bool {
        self.proc.join(tid.to_string()).exists()
    }

    /// Returns the process ID of thread `tid`, or `None` if the thread does not exist.
    pub fn process(&self, tid: u32) -> Option<u32> {
        let status = text(&self.proc.join(format!("{tid}/status")))?;
        status
            .lines()
            .find_map(|line| line.strip_prefix("Tgid:")?.trim().parse().ok())
    }
}

/// Returns a part of a place, or `None` if it is empty.
fn known(part: &str) -> Option<&str> {
    (!part.is_empty()).then_some(part)
}

/// Returns why and where a thread was off its CPU, and where its lock was released, if known.
pub(crate) fn off_cpu<'a>(
    reason: OffCpuReason,
    place: &'a Place,
    release: Option<&'a Place>,
) -> OffCpu<'a> {
    let mut off = OffCpu::new(reason);
    if let Some(release) = release {
        off.released_in = known(&release.call);
        off.released_at = known(&release.function);
    }
    if place.is_frozen {
        off.reason = OffCpuReason::Frozen;
    }
    if off.reason != OffCpuReason::Frozen {
        off.syscall = known(&place.call);
        off.function = known(&place.function);
        off.caller = known(&place.caller);
    }
    off
}

/// The bits of a wait's detail that contain the reason.
const REASON: u64 = (1 << CALL_SHIFT) - 1;

/// The bits of a wait's detail that contain the system call, shifted down.
const CALL: u64 = (1 << (STACK_SHIFT - CALL_SHIFT)) - 1;

/// The bits of a wait's detail that contain the key of a stack, shifted down.
const STACK: u64 = (1 << (RELEASE_SHIFT - STACK_SHIFT)) - 1;

/// Returns the reason for being off CPU that `detail` stands for, if any.
fn reason(detail: u64) -> Option<OffCpuReason> {
    Some(match detail {
        detail::THROTTLED => OffCpuReason::Throttled,
        detail::WOKEN => OffCpuReason::Woken,
        detail::PREEMPTED => OffCpuReason::Preempted,
        detail::SLEEPING => OffCpuReason::Sleeping,
        detail::DISK => OffCpuReason::Disk,
        detail::LOCK => OffCpuReason::Lock,
        detail::STOPPED => OffCpuReason::Stopped,
        detail::FROZEN => OffCpuReason::Frozen,
        detail::DEADLINE => OffCpuReason::Deadline,
        detail::MISSED => OffCpuReason::Missed,
        detail::REBORN => OffCpuReason::Reborn,
        detail::TIMER => OffCpuReason::Timer,
        _ => return None,
    })
}

/// Returns a function's name without the suffix that marks a copy made by the compiler
/// (`foo.isra.0`, `foo.cold`).
fn strip_clone(name: &str) -> &str {
    name.split_once('.')
        .map_or(name, |(stem, _)| if stem.is_empty() { name } else { stem })
}

/// Iterates over the rows of `/proc/interrupts`. Each item is a row's label, and the description
/// after its counts.
fn rows(text: &str) -> impl Iterator<Item = (&str, String)> {
    let header = text.lines().next().unwrap_or_default();
    let cpus = header.split_ascii_whitespace().count();
    let row = move |line| {
        let (label, rest) = str::split_once(line, ':')?;
        let words: Vec<&str> = rest.split_ascii_whitespace().skip(cpus).collect();
        Some((label.trim(), words.join(" ")))
    };
    text.lines().skip(1).filter_map(row)
}

/// Returns the names of the devices on each interrupt line. `text` is the contents of
/// `/proc/interrupts`.
fn irq_lines(text: &str) -> HashMap<u32, Arc<str>> {
    let line = |(label, description): (&str, String)| {
        let number = label.parse().ok()?;
        let devices = devices(&description);
        (!devices.is_empty()).then(|| (number, devices.into()))
    };
    rows(text).filter_map(line).collect()
}

/// Returns the names of inter-processor interrupts on architectures where these use interrupt lines
/// (arm64). `/proc/interrupts` lists their purpose under `IPI` plus the interrupt controller's
/// number, but without their line numbers. `/sys/kernel/irq` has both numbers.
fn inter_processor_interrupts(interrupts: &str, lines: &Path) -> HashMap<u32, Arc<str>> {
    let purposes: HashMap<&str, String> = rows(interrupts)
        .filter_map(|(label, purpose)| Some((label.strip_prefix("IPI")?, purpose)))
        .collect();
    if purposes.is_empty() {
        return HashMap::new();
    }
    let line = |number: u32| {
        let read = |file: &str| text(&lines.join(format!("{number}/{file}")));
        let is_call = read("actions")?.trim_end() == "IPI";
        let purpose = purposes.get(read("hwirq")?.trim_end())?;
        is_call.then(|| (number, between_cpus(purpose).into()))
    };
    let listing = fs::read_dir(lines).into_iter().flatten().flatten();
    listing
        .filter_map(|entry| entry.file_name().to_str()?.parse().ok())
        .filter_map(line)
        .collect()
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::{KernelFunctions, Names, inter_processor_interrupts, irq_lines};

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
    fn only_the_start_of_a_function_has_its_name() {
        let functions = KernelFunctions::read(SYMBOLS.as_bytes());
        assert_eq!(
            functions.name(0xffff_ffff_8100_0100),
            Some("tick_nohz_handler")
        );
        assert_eq!(functions.name(0xffff_ffff_8100_02ff), None);
        assert_eq!(functions.name(0xffff_ffff_8100_0300), Some("rx.isra.0"));
        assert_eq!(functions.name(0x1000), None);
        assert!(KernelFunctions::read(&b"0000000000000000 t hidden\n"[..]).is_empty());
    }

    #[test]
    fn an_address_is_recovered_from_its_low_bits() {
        let unknown = Names::read(Path::new("/nonexistent"), Path::new("/nonexistent"));
        assert_eq!(unknown.address(0x8100_0100), 0xffff_ffff_8100_0100);
        // The first address belongs to a function in a module. The second kernel has its text at
        // different addresses.
        assert_eq!(unknown.address(0xc000_0001), 0xffff_ffff_c000_0001);
        let functions = "ffff800012340000 T _text\nffff800080000000 t of_a_module\n";
        let elsewhere = Names {
            functions: KernelFunctions::read(functions.as_bytes()),
            ..unknown
        };
        assert_eq!(elsewhere.address(0x1234_0000), 0xffff_8000_1234_0000);
        assert_eq!(elsewhere.address(0xfff0_0000), 0xffff_8000_fff0_0000);
        assert_eq!(elsewhere.address(0x0000_1000), 0xffff_8000_0000_1000);
    }

    #[test]
    fn an_irq_line_is_named_after_its_devices() {
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
    fn arm64_lines_have_the_names_of_other_architectures() {
        let interrupts = "           CPU0       CPU1\n\
             11:       6658       8645     GICv3  27 Level     arch_timer\n\
             14:          1          0     GICv3  33 Level     uart-pl011\n\
            IPI0:         3         17       Rescheduling interrupts\n\
            IPI5:         0          0       IRQ work interrupts\n\
            Err:          0\n";
        let lines = irq_lines(interrupts);
        assert_eq!((&*lines[&11], &*lines[&14]), ("local_timer", "uart-pl011"));
        assert_eq!(lines.len(), 2);
        let folder = tempfile::tempdir().unwrap();
        for (number, actions, hwirq) in [(1, "IPI", "0"), (6, "IPI", "5"), (11, "arch_timer", "27")]
        {
            let line = folder.path().join(number.to_string());
            std::fs::create_dir(&line).unwrap();
            std::fs::write(line.join("actions"), format!("{actions}\n")).unwrap();
            std::fs::write(line.join("hwirq"), format!("{hwirq}\n")).unwrap();
        }
        let calls = inter_processor_interrupts(interrupts, folder.path());
        assert_eq!((&*calls[&1], &*calls[&6]), ("reschedule", "irq_work"));
        assert_eq!(calls.len(), 2);
        assert!(inter_processor_interrupts(interrupts, Path::new("/nonexistent")).is_empty());
    }

    #[test]
    fn unknown_names_fall_back_to_numbers() {
        let mut names = Names::read(Path::new("/nonexistent"), Path::new("/nonexistent"));
        assert!(!names.knows_functions());
        assert_eq!(&*Names::softirq(3), "NET_RX");
        assert_eq!(&*Names::softirq(42), "number 42");
        assert_eq!(&*names.interrupt(0x10000), "local_timer");
        assert_eq!(&*names.interrupt(77), "irq 77");
        assert_eq!(&*names.detail(0x1234), "0x1234");
    }
}
