//! Files whose code was sampled, and the names of the functions at the sampled offsets.
//!
//! While events arrive, a sampled file is only opened, without reading it. A file can be replaced
//! or deleted, and its process can exit, but an open file remains what was executed. Its symbols
//! are read by a separate thread after the recording has ended. Reading them can take longer than
//! the tracer's buffers last, and never ends on an unreachable network file system.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::path::{Path, PathBuf};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use ticktax_model::Nanos;
use ticktax_model::limitation::{FunctionsUnnamed, Limitation};
use ticktax_model::recording::{CodeFile, CodeFunction, Stack};

use crate::close::monotonic;
use crate::code_names::{Code, Found};

/// Maximum number of sampled files. Each keeps a file open until the recording ends.
const MOST_FILES: usize = 256;

/// Maximum number of keys that are remembered, including those of files that have no room.
const MOST_KEYS: usize = 1 << 12;

/// Maximum number of different offsets in all files.
const MOST_OFFSETS: usize = 1 << 16;

/// Maximum number of names in the header. A file with more keeps the offsets of the others.
const MOST_FUNCTIONS: usize = 1 << 12;

/// Largest offset in a file that a header can contain. Addresses are smaller, too.
const LARGEST_OFFSET: u64 = 1 << 50;

/// Number of files that a limitation names.
const NAMED_FILES: usize = 3;

/// Maximum time to wait for the names of all files.
const LONGEST: Nanos = Nanos::from_secs(2);

/// Distinguishes files that can have the same name.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum FileKey {
    /// Device and inode number, as in `/proc/PID/maps`.
    Inode(String, u64),
    /// Code that the kernel provides to all processes. 32-bit processes have another version, which
    /// may have the same length.
    Kernel {
        name: String,
        length: u64,
        is_32_bit: bool,
    },
    /// Code that a process generated.
    Generated(u32),
}

/// The sampled files, in the order of their first samples.
#[derive(Debug, Default)]
pub struct CodeFiles {
    proc: PathBuf,
    files: Vec<Sampled>,
    known: HashMap<FileKey, Option<usize>>,
    names: HashSet<String>,
    /// Number of different offsets in all files.
    offsets: usize,
    /// Number of samples in files that did not fit into the list, by name.
    left_out: BTreeMap<String, u64>,
}

#[derive(Debug)]
struct Sampled {
    /// Name in stacks, which no other file has.
    name: String,
    code: Code,
    /// Process in which it was opened, which is usually the one that was sampled first.
    process: u32,
    /// Number of samples at each offset.
    samples: HashMap<u64, u64>,
    /// Number of samples at offsets that did not fit into memory.
    left_out: u64,
}

impl Sampled {
    /// Opens the code in another process if the previous one had exited before it could be read.
    fn retry(&mut self, process: u32, open: impl FnOnce() -> Code) {
        if matches!(self.code, Code::Unreadable) && self.process != process {
            self.process = process;
            self.code = open();
        }
    }
}

/// The names of the functions in all sampled files.
#[derive(Debug, Default)]
pub struct NamedCode {
    /// Table for the recording's header.
    pub files: Vec<CodeFile>,
    /// Reasons why functions have no names.
    pub limitations: Vec<Limitation>,
}

impl CodeFiles {
    /// Creates an empty list. Process information is under `proc`.
    pub(crate) fn new(proc: &Path) -> Self {
        Self {
            proc: proc.to_owned(),
            ..Self::default()
        }
    }

    /// Adds a sample of `process` at an offset in the file called `file`, which `open` opens. If
    /// the file has no room, the returned code has no offset, because its name will stay unknown.
    pub(crate) fn sampled(
        &mut self,
        key: FileKey,
        file: &str,
        process: u32,
        offset: u64,
        open: impl FnOnce(&Path) -> Code,
    ) -> Stack {
        let index = match self.known.get(&key) {
            Some(&Some(index)) => {
                self.files[index].retry(process, || open(&self.proc));
                Some(index)
            }
            Some(None) => None,
            None => self.add(key, file, process, open),
        };
        let Some(index) = index else {
            let name = Stack::file_name(file);
            let code = Stack::from_offset(&name, None);
            if self.left_out.len() < MOST_FILES || self.left_out.contains_key(&name) {
                *self.left_out.entry(name).or_default() += 1;
            }
            return code;
        };
        let sampled = &mut self.files[index];
        if let Some(samples) = sampled.samples.get_mut(&offset) {
            *samples += 1;
        } else if self.offsets < MOST_OFFSETS && offset <= LARGEST_OFFSET {
            self.offsets += 1;
            sampled.samples.insert(offset, 1);
        } else {
            sampled.left_out += 1;
            return Stack::from_offset(&sampled.name, None);
        }
        Stack::from_offset(&sampled.name, Some(offset))
    }

    /// Adds a file. Returns its index, or `None` if the list is full.
    fn add(
        &mut self,
        key: FileKey,
        file: &str,
        process: u32,
        open: impl FnOnce(&Path) -> Code,
    ) -> Option<usize> {
        if self.files.len() >= MOST_FILES {
            if self.known.len() < MOST_KEYS {
                self.known.insert(key, None);
            }
            return None;
        }
        let index = self.files.len();
        self.files.push(Sampled {
            name: new_name(&mut self.names, file),
            code: open(&self.proc),
            process,
            samples: HashMap::new(),
            left_out: 0,
        });
        if self.known.len() < MOST_KEYS {
            self.known.insert(key, Some(index));
        }
        Some(index)
    }

    /// Returns a copy that keeps its own handles of the files open.
    pub(crate) fn copy(&self) -> Self {
        let copy = |file: &Sampled| Sampled {
            name: file.name.clone(),
            code: file.code.copy(),
            process: file.process,
            samples: file.samples.clone(),
            left_out: file.left_out,
        };
        Self {
            proc: self.proc.clone(),
            files: self.files.iter().map(copy).collect(),
            known: self.known.clone(),
            names: self.names.clone(),
            offsets: self.offsets,
            left_out: self.left_out.clone(),
        }
    }

    /// Finds the names of all sampled functions, which takes 2 s at most. `pause` is called
    /// after each few tens of microseconds of work, so that the search delays nobody.
    #[must_use]
    pub fn named(self, pause: fn()) -> NamedCode {
        self.named_within(LONGEST, pause)
    }

    /// Does the same as [`CodeFiles::named`], but takes `longest` at most.
    #[must_use]
    pub fn named_within(self, longest: Nanos, pause: fn()) -> NamedCode {
        let (mut files, proc) = (self.files, self.proc);
        let mut jobs = Vec::new();
        for (index, file) in files.iter_mut().enumerate() {
            let offsets: Vec<u64> = file.samples.keys().copied().collect();
            jobs.push((index, std::mem::take(&mut file.code), file.process, offsets));
        }
        let (sender, receiver) = mpsc::channel();
        let work = move || {
            for (index, code, process, offsets) in jobs {
                let found = code.find(&proc, process, &offsets, &mut || pause());
                if sender.send((index, found)).is_err() {
                    break;
                }
            }
        };
        let mut found: HashMap<usize, Found> = HashMap::new();
        let thread = thread::Builder::new().name("ticktax-symbols".to_owned());
        if !files.is_empty() && thread.spawn(work).is_ok() {
            let until = monotonic() + longest;
            while let Ok(left) = u64::try_from((until - monotonic()).0)
                && let Ok((index, names)) = receiver.recv_timeout(Duration::from_nanos(left))
            {
                found.insert(index, names);
            }
        }
        let mut unnamed = Unnamed::default();
        for (file, samples) in self.left_out {
            unnamed.add(FunctionsUnnamed::TooMany, &file, samples);
        }
        let mut room = MOST_FUNCTIONS;
        let tables = files.into_iter().enumerate().map(|(index, file)| {
            let found = found.remove(&index);
            table(file, found.unwrap_or_default(), &mut room, &mut unnamed)
        });
        NamedCode {
            files: tables.collect(),
            limitations: unnamed.limitations(),
        }
    }
}

/// Returns a name that is not in `names` yet, and adds it. If the file's own name is, a number is
/// appended.
fn new_name(names: &mut HashSet<String>, file: &str) -> String {
    let file = Stack::file_name(file);
    let mut name = file.clone();
    let mut number = 2;
    while !names.insert(name.clone()) {
        name = format!("{file} ({number})");
        number += 1;
    }
    name
}

/// Returns a file's entry in the header. `room` is the remaining number of names.
fn table(file: Sampled, found: Found, room: &mut usize, unnamed: &mut Unnamed) -> CodeFile {
    let is_cut = found.functions.len() > *room;
    let functions = found.functions.into_iter().take(*room);
    let functions = functions.map(|places| CodeFunction {
        name: places.function,
        first_offset: places.first,
        last_offset: places.last,
    });
    let table = CodeFile {
        functions: functions.collect(),
        build_id: found.build_id.map(|id| id.to_string()),
        name: file.name,
    };
    *room -= table.functions.len();
    let nameless = file.samples.iter();
    let nameless = nameless.filter(|&(&offset, _)| table.function(offset).is_none());
    let reason = if is_cut {
        FunctionsUnnamed::TooMany
    } else {
        found.reason
    };
    unnamed.add(
        reason,
        &table.name,
        nameless.map(|(_, samples)| samples).sum(),
    );
    unnamed.add(FunctionsUnnamed::TooMany, &table.name, file.left_out);
    table
}

/// Samples without a function name, by reason and file.
#[derive(Default)]
struct Unnamed(BTreeMap<FunctionsUnnamed, Vec<(u64, String)>>);

impl Unnamed {
    fn add(&mut self, reason: FunctionsUnnamed, file: &str, samples: u64) {
        if samples > 0 {
            let files = self.0.entry(reason).or_default();
            files.push((samples, file.to_owned()));
        }
    }

    fn limitations(self) -> Vec<Limitation> {
        let limitation = |(reason, mut files): (_, Vec<(u64, String)>)| {
            files.sort_by(|a, b| b.0.cmp(&a.0).then_with(|| a.1.cmp(&b.1)));
            let samples = files.iter().map(|(samples, _)| samples).sum();
            let files_left_out = files.len().saturating_sub(NAMED_FILES) as u64;
            let files = files.into_iter().take(NAMED_FILES);
            Limitation::FunctionsUnnamed {
                samples,
                files: files.map(|(_, file)| file).collect(),
                files_left_out,
                reason,
            }
        };
        self.0.into_iter().map(limitation).collect()
    }
}

#[cfg(test)]
mod tests;
