//! Names the code at an address in a process: the file that is mapped there, and the offset in it.

use std::collections::HashMap;
use std::fs::{self, File};
use std::path::{Path, PathBuf};

use ticktax_model::recording::{CodePlace, Stack, WaitCode};
use ticktax_symbols::{Caller, Registers, UnwindFile};

use crate::code_files::{CodeFiles, FileKey};
use crate::code_names::Code;
use crate::waited::StackMemory;

/// Name of executable memory that belongs to no file. Just-in-time compilers use such memory.
const GENERATED: &str = "[generated code]";

/// Prefixes of the paths of memory that has an inode number, but no file that could be found.
const NO_FILE: [&str; 3] = ["/SYSV", "/dev/zero", "/memfd:"];

/// Names of the kernel's code in each process.
const KERNEL: [&str; 3] = ["[uprobes]", "[vdso]", "[vsyscall]"];

/// The executable mappings of processes, as far as samples needed them.
#[derive(Debug)]
pub(crate) struct UserCode {
    proc: PathBuf,
    /// Mappings by process and thread name. A process that executes another program has another
    /// name.
    known: Known,
    files: CodeFiles,
    /// Files whose unwinding tables were needed, if they have one.
    tables: HashMap<FileKey, Option<UnwindFile<File>>>,
}

#[derive(Debug, Default)]
struct Mappings {
    list: Vec<Mapping>,
    /// Number of times the list was read. A process maps its files when it starts.
    readings: u32,
}

#[derive(Debug, PartialEq, Eq)]
struct Mapping {
    begin: u64,
    end: u64,
    /// Offset of `begin` in the file.
    offset: u64,
    device: String,
    inode: u64,
    /// Path of the file, or another name of the memory.
    path: String,
    is_deleted: bool,
}

impl UserCode {
    /// Maximum number of processes and thread names whose mappings are kept.
    const MAX: usize = 1 << 10;
    /// Maximum number of readings of one process's mappings.
    const READINGS: u32 = 4;
    /// Maximum number of files whose unwinding tables are kept open.
    const TABLES: usize = 1 << 6;

    /// Creates a reader of the process information under `proc`, which is normally `/proc`.
    pub(crate) fn new(proc: &Path) -> Self {
        Self {
            proc: proc.to_owned(),
            known: HashMap::new(),
            files: CodeFiles::new(proc),
            tables: HashMap::new(),
        }
    }

    /// Returns the file and the offset of an address in `process`. The result is empty if the
    /// process has exited before its mappings were read. `comm` is the name of the thread that was
    /// sampled.
    pub(crate) fn at(&mut self, process: u32, comm: [u8; 16], address: u64) -> Stack {
        let Self {
            proc, known, files, ..
        } = self;
        match mapping_at(proc, known, (process, comm), address) {
            Some(mapping) => mapping.sampled(process, address, files),
            None => Stack::default(),
        }
    }

    /// Returns the places on a thread's stack in user mode, innermost first, as far as the tables
    /// of its files show them. `registers` are those with which the thread entered the kernel.
    pub(crate) fn stack(
        &mut self,
        process: u32,
        comm: [u8; 16],
        registers: &Registers,
        memory: &StackMemory,
    ) -> Vec<CodePlace> {
        let Self {
            proc,
            known,
            files,
            tables,
        } = self;
        let (mut registers, mut places) = (*registers, Vec::new());
        while let Some(pointer) = registers.instruction_pointer()
            && places.len() < WaitCode::MAX_DEPTH
        {
            // A return address may be the first byte after the function that made the call.
            let address = pointer.wrapping_sub(u64::from(!places.is_empty()));
            let Some(mapping) = mapping_at(proc, known, (process, comm), address) else {
                break;
            };
            let sampled = mapping.sampled(process, address, files);
            places.extend(CodePlace::from_stack(&sampled));
            let Some(key) = mapping.key() else {
                break;
            };
            if tables.len() >= Self::TABLES && !tables.contains_key(&key) {
                tables.clear();
            }
            let table = tables
                .entry(key)
                .or_insert_with(|| mapping.code(proc, process).unwind_file());
            let Some(table) = table else { break };
            let offset = address - mapping.begin + mapping.offset;
            match table.caller(offset, &registers, |address| memory.word(address)) {
                Caller::Known(caller) => registers = *caller,
                Caller::None | Caller::Unknown => break,
            }
        }
        places
    }

    /// Returns the sampled files.
    pub(crate) fn files(&self) -> &CodeFiles {
        &self.files
    }

    /// Returns the sampled files, and forgets them.
    pub(crate) fn take_files(&mut self) -> CodeFiles {
        std::mem::replace(&mut self.files, CodeFiles::new(&self.proc))
    }
}

/// Mappings by process and thread name.
type Known = HashMap<(u32, [u8; 16]), Mappings>;

/// Returns the executable mapping at an address in a process. `whose` is the process's ID and the
/// name of the thread. Reads the mappings if they are not known.
fn mapping_at<'a>(
    proc: &Path,
    known: &'a mut Known,
    whose: (u32, [u8; 16]),
    address: u64,
) -> Option<&'a Mapping> {
    if known.len() >= UserCode::MAX {
        known.clear();
    }
    let mappings = known.entry(whose).or_default();
    if mappings.at(address).is_none() && mappings.readings < UserCode::READINGS {
        mappings.readings += 1;
        let maps = fs::read(proc.join(format!("{}/maps", whose.0)));
        if let Ok(maps) = maps {
            mappings.list = executable(&String::from_utf8_lossy(&maps));
        }
    }
    mappings.at(address)
}

impl Mapping {
    /// Identifies the file that is mapped, or returns `None` if it is not a file.
    fn key(&self) -> Option<FileKey> {
        let has_file = !NO_FILE.iter().any(|prefix| self.path.starts_with(prefix));
        let is_file = has_file && self.inode != 0 && !KERNEL.contains(&&*self.path);
        is_file.then(|| FileKey::Inode(self.device.clone(), self.inode))
    }

    /// Opens the file that is mapped in a process.
    fn code(&self, proc: &Path, process: u32) -> Code {
        let path = (!self.is_deleted).then(|| Path::new(&self.path));
        Code::mapped(proc, process, &(self.begin..self.end), path, self.inode)
    }

    /// Adds a sample of this mapping to the sampled files. Returns its code.
    fn sampled(&self, process: u32, address: u64, files: &mut CodeFiles) -> Stack {
        let memory = self.begin..self.end;
        let offset = address - self.begin + self.offset;
        if KERNEL.contains(&&*self.path) {
            let open = |proc: &Path| Code::from_memory(proc, process, &memory);
            let key = FileKey::Kernel {
                name: self.path.clone(),
                length: memory.end.saturating_sub(memory.start),
                is_32_bit: memory.end <= 1 << u32::BITS,
            };
            return files.sampled(key, &self.path, process, offset, open);
        }
        let file = self.path.rsplit('/').next().filter(|file| !file.is_empty());
        let has_file = !NO_FILE.iter().any(|prefix| self.path.starts_with(prefix));
        let Some(file) = file.filter(|_| has_file && self.inode != 0) else {
            let open = |proc: &Path| Code::generated(proc, process);
            let key = FileKey::Generated(process);
            return files.sampled(key, GENERATED, process, address, open);
        };
        let key = FileKey::Inode(self.device.clone(), self.inode);
        files.sampled(key, file, process, offset, |proc| self.code(proc, process))
    }
}

impl Mappings {
    fn at(&self, address: u64) -> Option<&Mapping> {
        let mut list = self.list.iter();
        list.find(|mapping| (mapping.begin..mapping.end).contains(&address))
    }
}

/// Returns the executable mappings in the text of `/proc/PID/maps`.
fn executable(maps: &str) -> Vec<Mapping> {
    maps.lines().filter_map(mapping).collect()
}

/// Parses a line such as `7f00-7f80 r-xp 00001000 fd:00 1234    /usr/lib/libc.so.6`.
fn mapping(line: &str) -> Option<Mapping> {
    let mut words = line.splitn(6, ' ');
    let (begin, end) = words.next()?.split_once('-')?;
    let is_executable = words.next()?.as_bytes().get(2) == Some(&b'x');
    let (offset, device, inode) = (words.next()?, words.next()?, words.next()?);
    let path = words.next().unwrap_or_default().trim_start();
    let existing = path.strip_suffix(" (deleted)");
    let hex = |number| u64::from_str_radix(number, 16).ok();
    is_executable.then_some(Mapping {
        begin: hex(begin)?,
        end: hex(end)?,
        offset: hex(offset)?,
        device: device.to_owned(),
        inode: inode.parse().ok()?,
        path: existing.unwrap_or(path).to_owned(),
        is_deleted: existing.is_some(),
    })
}

#[cfg(test)]
mod tests {
    use super::UserCode;

    const MAPS: &str = "\
55d0c0000000-55d0c0001000 r--p 00000000 fd:00 11                         /opt/gamesrv
55d0c0001000-55d0c0009000 r-xp 00001000 fd:00 11                         /opt/gamesrv
7f0000000000-7f0000002000 rwxp 00000000 00:00 0 
7f0000010000-7f0000020000 r-xp 00002000 fd:00 12                         /usr/lib/a b.so (deleted)
7ffd00000000-7ffd00002000 r-xp 00000000 00:00 0                          [vdso]
garbage
";

    fn code(address: u64) -> String {
        let folder = tempfile::tempdir().unwrap();
        std::fs::create_dir(folder.path().join("7")).unwrap();
        std::fs::write(folder.path().join("7/maps"), MAPS).unwrap();
        UserCode::new(folder.path())
            .at(7, [0; 16], address)
            .to_string()
    }

    #[test]
    fn code_is_named_by_file_and_offset() {
        assert_eq!(code(0x55d0_c000_1010), "gamesrv;gamesrv+0x1010");
        assert_eq!(code(0x7f00_0001_0001), "a b.so;a b.so+0x2001");
        assert_eq!(code(0x7ffd_0000_0010), "[vdso];[vdso]+0x10");
        let generated = "[generated code];[generated code]+0x7f0000000010";
        assert_eq!(code(0x7f00_0000_0010), generated);
    }

    #[test]
    fn an_address_outside_of_executable_memory_has_no_name() {
        assert_eq!(code(0x55d0_c000_0010), "");
        assert_eq!(code(0), "");
        let mut absent = UserCode::new(std::path::Path::new("/nonexistent"));
        assert!(absent.at(7, [0; 16], 0x55d0_c000_1010).is_empty());
    }

    #[test]
    fn a_file_that_is_mapped_later_is_found() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::create_dir(folder.path().join("7")).unwrap();
        let maps = folder.path().join("7/maps");
        std::fs::write(&maps, "").unwrap();
        let mut code = UserCode::new(folder.path());
        assert!(code.at(7, [0; 16], 0x55d0_c000_1010).is_empty());
        std::fs::write(&maps, MAPS).unwrap();
        assert!(!code.at(7, [0; 16], 0x55d0_c000_1010).is_empty());
    }
}
