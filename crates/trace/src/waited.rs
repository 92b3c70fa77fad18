//! Reads the records of the user code of waits.
//!
//! `bpf/waited.h` writes a record when a followed thread ends a system call or a page fault after a
//! long wait. It contains the registers and the end of the stack in user mode. This module finds
//! the functions on that stack.
//!
//! A record of the code that ends the wait by waking the thread comes earlier. It is kept until the
//! record of the wait.

use std::collections::HashMap;

use aya::EbpfLoader;
use aya::maps::{MapData, RingBuf};
use ticktax_model::recording::{CodePlace, Edge, Row, WaitCode};
use ticktax_model::{Cpu, Nanos, SourceTable};
use ticktax_symbols::Registers;

use crate::calls;
use crate::decode::Identity;
use crate::load::Sizes;
use crate::object::{global, map};
use crate::record::{code, detail, kind};
use crate::tracer::Tracer;
use crate::wait_objects::{CallArguments, FileId};

/// Size of the part of a stack that is read, in bytes, as in `bpf/waited.h`.
const STACK_BYTES: usize = 4096;

/// Offsets in `struct wait_code`.
const COMM: usize = 32;
const REGISTERS: usize = 96;
const PATH: usize = REGISTERS + 21 * 8;
const STACK: usize = PATH + 128;
const BYTES: usize = STACK + STACK_BYTES;

/// Positions in `struct pt_regs` of the registers with the DWARF numbers 0 to 16. A system call
/// overwrites two of them.
const PT_REGS: [Option<usize>; 17] = [
    Some(10),
    Some(12),
    None,
    Some(5),
    Some(13),
    Some(14),
    Some(4),
    Some(19),
    Some(9),
    Some(8),
    Some(7),
    None,
    Some(3),
    Some(2),
    Some(1),
    Some(0),
    Some(16),
];

/// Position in `struct pt_regs` of the register with the first argument.
const FIRST_ARGUMENT: usize = 14;

/// Maximum number of wakers whose code is kept until the record of the wait.
const MOST_WAKERS: usize = 1 << 12;

/// The memory of a thread around the end of its stack.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct StackMemory {
    pub(crate) begin: u64,
    pub(crate) bytes: Vec<u8>,
}

impl StackMemory {
    /// Returns the eight bytes at an address, or `None` if they were not read.
    pub(crate) fn word(&self, address: u64) -> Option<u64> {
        let at = usize::try_from(address.checked_sub(self.begin)?).ok()?;
        let bytes = self.bytes.get(at..at.checked_add(8)?)?;
        Some(u64::from_ne_bytes(bytes.try_into().ok()?))
    }
}

/// A wait that has ended, and the user code in which the thread waited, or of its waker.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Waited {
    at: Nanos,
    since: Nanos,
    pub(crate) tid: u32,
    pub(crate) tgid: u32,
    /// System call, as in [`CpuState`](crate::record::CpuState).
    call: u32,
    cpu: u32,
    pub(crate) comm: [u8; 16],
    file: Option<FileId>,
    first_argument: u64,
    /// Address of the page fault.
    address: u64,
    /// Thread that is being woken.
    woken: u32,
    /// One of the constants in [`code`].
    about: u32,
    path: String,
    registers: Registers,
    memory: StackMemory,
}

/// The buffer of these records.
pub(crate) struct WaitRing {
    ring: RingBuf<MapData>,
    /// A record that was taken too early.
    ahead: Option<Waited>,
}

impl WaitRing {
    pub(crate) fn new(map: aya::maps::Map) -> Option<Self> {
        let ring = RingBuf::try_from(map).ok()?;
        Some(Self { ring, ahead: None })
    }

    /// Returns the next record that was taken by `until`.
    fn next(&mut self, until: Nanos) -> Option<Waited> {
        let next = self.ahead.take().or_else(|| {
            let item = self.ring.next()?;
            decode(&item)
        })?;
        if next.at > until {
            self.ahead = Some(next);
            return None;
        }
        Some(next)
    }
}

impl Sizes {
    /// Returns whether the user code of waits is recorded.
    pub(crate) fn takes_wait_code(self) -> bool {
        self.following && cfg!(target_arch = "x86_64")
    }

    /// Returns the size of the buffer of wait codes in bytes: a burst of each class on each CPU, or
    /// a page, which is the minimum, if no wait codes are taken.
    pub(crate) fn wait_code_bytes(self) -> u32 {
        if !self.takes_wait_code() {
            return 1 << 12;
        }
        let bytes = (self.cpus << 18).next_power_of_two();
        u32::try_from(bytes.clamp(1 << 20, 1 << 25)).unwrap_or(1 << 25)
    }
}

impl Tracer {
    /// Emits the records of waits that were taken by `until`.
    pub(crate) fn drain_wait_codes(
        &mut self,
        until: Nanos,
        sources: &mut SourceTable,
        sink: &mut dyn FnMut(&SourceTable, &Row),
    ) {
        while let Some(waited) = self.wait_codes.as_mut().and_then(|ring| ring.next(until)) {
            let code = self.decoder.names_mut().wait_code(&waited);
            if waited.since < self.since || code.is_empty() {
                continue;
            }
            let identity = Identity {
                kind: kind::TASK,
                flags: 0,
                tid: waited.tid,
                tgid: waited.tgid,
                detail: detail::NONE,
                comm: waited.comm,
                lock: 0,
            };
            let source = self.decoder.source(sources, &identity);
            let text = code.to_string().into();
            let edge = Edge::waited(Cpu(waited.cpu), waited.since, waited.at, source, text);
            sink(sources, &Row::Edge(edge));
        }
    }
}

impl crate::names::Names {
    /// Returns the user code in which a thread waited. If the record is about a waker, keeps its
    /// code for the record of the wait, and returns an empty code.
    pub(crate) fn wait_code(&mut self, waited: &Waited) -> WaitCode {
        let stack = self.user_stack(waited);
        if waited.about == code::WAKER {
            self.wakers.add(waited, stack);
            return WaitCode::default();
        }
        let object = if waited.about == code::FAULT {
            // Reading the mappings takes time, and a page fault of anonymous memory has no file.
            let found = waited
                .file
                .and_then(|_| self.user_code.file_at(waited.tgid, waited.address));
            self.objects.mapped(found, waited.file, &waited.path)
        } else {
            let Some(call) = calls::name_of_state(waited.call.into()) else {
                return WaitCode::default();
            };
            let arguments = CallArguments {
                call: &call,
                first: waited.first_argument,
                file: waited.file,
                path: &waited.path,
            };
            self.objects.of_call(waited.tgid, arguments)
        };
        WaitCode::new(object.as_deref(), stack).woken_from(self.wakers.take(waited))
    }

    fn user_stack(&mut self, waited: &Waited) -> Vec<CodePlace> {
        if u64::from(waited.call) & detail::CALL_COMPAT != 0 {
            return Vec::new();
        }
        let (registers, memory) = (&waited.registers, &waited.memory);
        self.user_code
            .stack(waited.tgid, waited.comm, registers, memory)
    }
}

/// The user code of wakers, by the thread that they woke. Each has the start of the wait.
#[derive(Debug, Default)]
pub(crate) struct Wakers(HashMap<u32, (Nanos, Vec<CodePlace>)>);

impl Wakers {
    fn add(&mut self, waker: &Waited, stack: Vec<CodePlace>) {
        if self.0.len() >= MOST_WAKERS {
            self.0.clear();
        }
        self.0.insert(waker.woken, (waker.since, stack));
    }

    /// Returns the code of the thread that ended a wait.
    fn take(&mut self, waited: &Waited) -> Vec<CodePlace> {
        let waker = self.0.remove(&waited.tid);
        let waker = waker.filter(|(since, _)| *since == waited.since);
        waker.map_or_else(Vec::new, |(_, stack)| stack)
    }
}

/// Decodes a `struct wait_code`. Returns `None` if it is incomplete.
fn decode(bytes: &[u8]) -> Option<Waited> {
    let bytes = bytes.get(..BYTES)?;
    let long = |at: usize| Some(u64::from_ne_bytes(bytes.get(at..at + 8)?.try_into().ok()?));
    let word = |at: usize| Some(u32::from_ne_bytes(bytes.get(at..at + 4)?.try_into().ok()?));
    let register = |number: usize| long(REGISTERS + number * 8);
    let path = bytes.get(PATH..STACK)?;
    let length = path.iter().position(|&byte| byte == 0)?;
    let registers = Registers::new(PT_REGS.map(|number| register(number?)));
    let read = usize::try_from(word(60)?).ok()?.min(STACK_BYTES);
    Some(Waited {
        at: Nanos(long(0)?.cast_signed()),
        since: Nanos(long(8)?.cast_signed()),
        tid: word(16)?,
        tgid: word(20)?,
        call: word(24)?,
        cpu: word(28)?,
        comm: bytes.get(COMM..COMM + 16)?.try_into().ok()?,
        file: FileId::new(long(48)?, word(56)?, long(72)?),
        first_argument: register(FIRST_ARGUMENT)?,
        address: long(80)?,
        woken: word(88)?,
        about: word(92)?,
        path: String::from_utf8_lossy(&path[..length]).into_owned(),
        registers,
        memory: StackMemory {
            begin: long(64)?,
            bytes: bytes.get(STACK..STACK + read)?.to_owned(),
        },
    })
}

/// Makes the programs record the user code of waits if it is wanted.
pub(crate) fn prepare(loader: &mut EbpfLoader<'_>, sizes: Sizes) {
    let is_taken: &'static u32 = if sizes.takes_wait_code() { &1 } else { &0 };
    loader
        .override_global(global::TAKING_CODE, is_taken, true)
        .map_max_entries(map::WAIT_CODES, sizes.wait_code_bytes());
}

/// Takes the buffer from the loaded programs, if it is used.
pub(crate) fn wait_ring(programs: &mut aya::Ebpf, sizes: Sizes) -> Option<WaitRing> {
    let map = programs
        .take_map(map::WAIT_CODES)
        .filter(|_| sizes.takes_wait_code());
    map.and_then(WaitRing::new)
}

#[cfg(test)]
mod tests {
    use ticktax_model::Nanos;
    use ticktax_model::recording::CodePlace;

    use super::{BYTES, PATH, REGISTERS, STACK, STACK_BYTES, Wakers, decode};
    use crate::record::code;

    #[test]
    fn a_record_is_decoded() {
        let mut bytes = vec![0; BYTES];
        let mut put =
            |at: usize, value: u64| bytes[at..at + 8].copy_from_slice(&value.to_ne_bytes());
        put(0, 500);
        put(8, 200);
        put(16, 7 | 6 << 32);
        put(24, 2 + 74);
        put(48, 131);
        put(56, (STACK_BYTES as u64) << 32 | 254 << 20);
        put(64, 0x7ffd_0000_0000);
        put(80, 0x7f00_0000_1000);
        put(88, 9 | u64::from(code::WAKER) << 32);
        put(REGISTERS + 14 * 8, 3);
        put(REGISTERS + 16 * 8, 0x40_1000);
        put(REGISTERS + 19 * 8, 0x7ffd_0000_0ff8);
        put(STACK + 0xff8, 0x40_2000);
        bytes[PATH] = b'x';
        let waited = decode(&bytes).unwrap();
        assert_eq!((waited.at, waited.since), (Nanos(500), Nanos(200)));
        assert_eq!((waited.tid, waited.tgid, waited.call), (7, 6, 76));
        assert_eq!(waited.address, 0x7f00_0000_1000);
        assert_eq!((waited.woken, waited.about), (9, code::WAKER));
        assert_eq!((waited.first_argument, &*waited.path), (3, "x"));
        assert_eq!(waited.file.map(|file| file.device), Some((254, 0)));
        assert_eq!(waited.registers.instruction_pointer(), Some(0x40_1000));
        assert_eq!(waited.memory.word(0x7ffd_0000_0ff8), Some(0x40_2000));
        assert_eq!(waited.memory.bytes.len(), STACK_BYTES);
        // Memory beyond was not read.
        assert_eq!(waited.memory.word(0x7ffd_0000_1000), None);
        assert_eq!(waited.memory.word(0x7ffd_0000_0ffc), None);
        assert_eq!(decode(&bytes[1..]), None);
    }

    #[test]
    fn a_waker_belongs_to_one_wait() {
        let record = |tid: u32, since: u64, woken: u32| {
            let mut bytes = vec![0; BYTES];
            bytes[8..16].copy_from_slice(&since.to_ne_bytes());
            bytes[16..20].copy_from_slice(&tid.to_ne_bytes());
            bytes[88..92].copy_from_slice(&woken.to_ne_bytes());
            decode(&bytes).unwrap()
        };
        let mut wakers = Wakers::default();
        let stack = vec![CodePlace::new("db", Some(16))];
        wakers.add(&record(3, 200, 7), stack.clone());
        // Another thread, and the same one.
        assert!(wakers.take(&record(8, 200, 0)).is_empty());
        assert_eq!(wakers.take(&record(7, 200, 0)), stack);
        assert!(wakers.take(&record(7, 200, 0)).is_empty());
        // Another wait of the same thread.
        wakers.add(&record(3, 300, 7), stack);
        assert!(wakers.take(&record(7, 400, 0)).is_empty());
    }
}
