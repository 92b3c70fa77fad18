//! Names the code at an address in a process: the file that is mapped there, and the offset in it.

use std::collections::HashMap;
use std::fs::{self, File};
use std::path::{Path, PathBuf};

use ticktax_model::recording::{CodePlace, Stack, WaitCode};
use ticktax_symbols::{Caller, Registers, UnwindFile};

use crate::code_files::{CodeFiles, FileKey};
use crate::code_names::{Code, Table};
use crate::wait_objects::MappedFile;
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
    /// Files whose unwinding tables were needed, if they have one. A file that could not be read
    /// is missing, because another process may still have it.
    tables: Tables,
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
    is_executable: bool,
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
            let Some(table) = table(tables, &key, || {
                mapping.code(proc, process).unwind_file(proc, process)
            }) else {
                break;
            };
            let offset = address - mapping.begin + mapping.offset;
            match table.caller(offset, &registers, |address| memory.word(address)) {
                Caller::Known(caller) => registers = *caller,
                Caller::None | Caller::Unknown => break,
            }
        }
        places
    }

    /// Returns the file that `process` has mapped at an address, of executable code or not.
    pub(crate) fn file_at(&self, process: u32, address: u64) -> Option<MappedFile> {
        let maps = fs::read(self.proc.join(format!("{process}/maps"))).ok()?;
        let maps = String::from_utf8_lossy(&maps);
        let mut all = maps.lines().filter_map(Mapping::from_line);
        let mapping = all.find(|mapping| (mapping.begin..mapping.end).contains(&address))?;
        let (major, minor) = mapping.device.split_once(':')?;
        let number = |hex| u32::from_str_radix(hex, 16).ok();
        Some(MappedFile {
            device: (number(major)?, number(minor)?),
            inode: mapping.inode,
            path: mapping.path,
        })
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

/// Unwinding tables of files.
type Tables = HashMap<FileKey, Option<UnwindFile<File>>>;

/// Returns the unwinding table of a file. Opens it if it is not known.
fn table<'a>(
    tables: &'a mut Tables,
    key: &FileKey,
    open: impl FnOnce() -> Table,
) -> Option<&'a mut UnwindFile<File>> {
    if !tables.contains_key(key) {
        let table = match open() {
            Table::Known(table) => Some(table),
            Table::None => None,
            Table::Unreadable => return None,
        };
        if tables.len() >= UserCode::TABLES {
            tables.clear();
        }
        tables.insert(key.clone(), table);
    }
    tables.get_mut(key)?.as_mut()
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
    /// Parses a line such as `7f00-7f80 r-xp 00001000 fd:00 1234    /usr/lib/libc.so.6`.
    fn from_line(line: &str) -> Option<Self> {
        let mut words = line.splitn(6, ' ');
        let (begin, end) = words.next()?.split_once('-')?;
        let is_executable = words.next()?.as_bytes().get(2) == Some(&b'x');
        let (offset, device, inode) = (words.next()?, words.next()?, words.next()?);
        let path = words.next().unwrap_or_default().trim_start();
        let existing = path.strip_suffix(" (deleted)");
        let hex = |number| u64::from_str_radix(number, 16).ok();
        Some(Self {
            begin: hex(begin)?,
            end: hex(end)?,
            offset: hex(offset)?,
            device: device.to_owned(),
            inode: inode.parse().ok()?,
            path: existing.unwrap_or(path).to_owned(),
            is_deleted: existing.is_some(),
            is_executable,
        })
    }

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
    let mappings = maps.lines().filter_map(Mapping::from_line);
    mappings.filter(|mapping| mapping.is_executable).collect()
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;

    use ticktax_symbols::Registers;

    use super::UserCode;
    use crate::mounts::mount_of;
    use crate::waited::StackMemory;

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
    fn data_of_a_file_is_found_by_its_address() {
        let folder = tempfile::tempdir().unwrap();
        fs::create_dir(folder.path().join("7")).unwrap();
        fs::write(folder.path().join("7/maps"), MAPS).unwrap();
        let code = UserCode::new(folder.path());
        let data = code.file_at(7, 0x55d0_c000_0010).unwrap();
        assert_eq!(
            (&*data.path, data.inode, data.device),
            ("/opt/gamesrv", 11, (0xfd, 0))
        );
        assert_eq!(code.file_at(7, 0x55d0_c000_9000), None);
        assert_eq!(code.file_at(8, 0x55d0_c000_0010), None);
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

    /// Returns the length of the stack of a thread that has just called a function of this program.
    fn depth(code: &mut UserCode) -> usize {
        let called = depth as *const () as u64;
        let mut values = [Some(0); 17];
        (values[7], values[16]) = (Some(0x1000), Some(called));
        let memory = StackMemory {
            begin: 0x1000,
            bytes: (called + 1).to_ne_bytes().to_vec(),
        };
        code.stack(7, [0; 16], &Registers::new(values), &memory)
            .len()
    }

    /// Creates a directory like `/proc` in which process 7 has the memory of this process. Its root
    /// directory is missing, so that its files cannot be opened. They are on a file system of type
    /// `system`.
    fn proc_of_this_program(system: &str) -> tempfile::TempDir {
        let folder = tempfile::tempdir().unwrap();
        let process = folder.path().join("7");
        fs::create_dir(&process).unwrap();
        fs::copy("/proc/self/maps", process.join("maps")).unwrap();
        let program = fs::File::open(std::env::current_exe().unwrap()).unwrap();
        let mount = mount_of(&program).unwrap();
        let mounts = format!("1 0 8:1 / / rw - ext4 x rw\n{mount} 1 8:2 / /x rw - {system} x rw\n");
        fs::write(process.join("mountinfo"), mounts).unwrap();
        folder
    }

    #[test]
    #[cfg(target_arch = "x86_64")]
    fn a_file_that_could_not_be_opened_is_tried_again() {
        let folder = proc_of_this_program("ext4");
        let mut code = UserCode::new(folder.path());
        assert_eq!(depth(&mut code), 1);
        symlink("/", folder.path().join("7/root")).unwrap();
        assert_eq!(depth(&mut code), 2);
        // Its table stays known.
        fs::remove_file(folder.path().join("7/root")).unwrap();
        assert_eq!(depth(&mut code), 2);
    }

    #[test]
    #[cfg(target_arch = "x86_64")]
    fn a_file_on_another_machine_is_not_read() {
        let folder = proc_of_this_program("nfs4");
        symlink("/", folder.path().join("7/root")).unwrap();
        let mut code = UserCode::new(folder.path());
        assert_eq!(depth(&mut code), 1);
        assert!(code.tables.values().all(Option::is_none) && code.tables.len() == 1);
    }
}
