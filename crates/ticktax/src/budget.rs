//! Memory limit for commands that read files.
//!
//! The analyses keep data per thread, wait and account. A malicious file can make them use a
//! thousand times its own size. If the reader can count in advance that a file contains too much,
//! it rejects the file. Otherwise, this guard ends the process before it exhausts the machine's
//! memory.

use std::fs::{self, File, Metadata};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use crate::terminal::Terminal;

const MIB: u64 = 1 << 20;
/// Memory that a command may use, in addition to [`EACH`] for each byte of the files.
/// `docs/reference/data.md` documents these limits.
const TO_SHOW: u64 = 64 * MIB;
/// Memory that a prediction may use, in addition to [`EACH`] for each byte of the files. It is
/// larger than [`TO_SHOW`] because each simulated thread and CPU needs memory.
const TO_PREDICT: u64 = 1024 * MIB;
/// Bytes of additional memory allowed for each byte of the files.
const EACH: u64 = 20;
/// Memory that the process may allocate between two checks. The guard therefore acts when the
/// process is this close to the limit.
const SLACK: u64 = 4 * MIB;
/// Time between two checks. A check takes two microseconds.
const INTERVAL: Duration = Duration::from_millis(1);
/// Number of threads that may search an empty file. Each MiB of file size allows one more, because
/// a thread needs several MiB of memory.
const THREADS: u64 = 4;

/// Memory limit for a command that reads files. It applies until this value is dropped.
pub(crate) struct Budget {
    size: u64,
    /// Memory allowed for an empty file.
    base: u64,
    /// The guard thread stops when this is dropped.
    _held: Arc<()>,
}

impl Budget {
    /// Limits the memory of a command that shows `paths`. If the command exceeds the limit, the
    /// process ends with a one-line error. The size of a directory is the sum of its files.
    pub(crate) fn begin(paths: &[&Path], terminal: &Terminal) -> Self {
        let advice = "report on part of it (--from, --to), or record for a shorter time";
        Self::watch(paths, TO_SHOW, advice, terminal)
    }

    pub(crate) fn begin_to_predict(path: &Path, terminal: &Terminal) -> Self {
        let advice = "predict a shorter time (--for), or record fewer threads";
        Self::watch(&[path], TO_PREDICT, advice, terminal)
    }

    fn watch(paths: &[&Path], base: u64, advice: &'static str, terminal: &Terminal) -> Self {
        let size = paths.iter().map(|path| size_of(path)).sum();
        let held = Arc::new(());
        let is_over = {
            let held = Arc::downgrade(&held);
            move || held.strong_count() == 0
        };
        let budget = Self {
            size,
            base,
            _held: held,
        };
        let Some(memory) = Memory::open() else {
            return budget;
        };
        let (terminal, most) = (*terminal, budget.most());
        let names: Vec<String> = paths
            .iter()
            .map(|path| path.display().to_string())
            .collect();
        let files = names.join(" and ");
        let guard = move || {
            while memory
                .allocated()
                .is_none_or(|allocated| allocated < most - SLACK)
            {
                if is_over() {
                    return;
                }
                thread::sleep(INTERVAL);
            }
            end(&terminal, &files, most, advice);
        };
        // If the guard thread cannot start, the reader's own limits still apply.
        drop(
            thread::Builder::new()
                .name("budget".to_owned())
                .spawn(guard),
        );
        budget
    }

    fn most(&self) -> u64 {
        self.base + EACH.saturating_mul(self.size)
    }

    /// Returns how many threads search for periodic activity: one per CPU, or fewer if the file is
    /// small.
    pub(crate) fn threads(&self) -> usize {
        let most = usize::try_from(THREADS + self.size / MIB).unwrap_or(usize::MAX);
        crate::beats::threads().min(most)
    }
}

#[expect(
    clippy::exit,
    reason = "the thread that allocates the memory cannot be stopped"
)]
fn end(terminal: &Terminal, files: &str, most: u64, advice: &str) -> ! {
    let most = most / MIB;
    terminal.complain(&format_args!(
        "{files} needs more than {most} MiB of memory, the limit for a file of its size: {advice}"
    ));
    std::process::exit(1);
}

/// Returns the size of a file, or the total size of all files in a directory. Links in a directory
/// do not count, because they could lead to a large file that is not read.
fn size_of(path: &Path) -> u64 {
    let Ok(entries) = fs::read_dir(path) else {
        return fs::metadata(path).map_or(0, |facts| stored(&facts));
    };
    let files = entries.filter_map(|entry| entry.ok()?.metadata().ok());
    let files = files.filter(Metadata::is_file);
    files.map(|facts| stored(&facts)).sum()
}

/// Returns the length of a file without its holes, or its full length if the file system does not
/// report the allocated blocks.
fn stored(facts: &Metadata) -> u64 {
    match facts.blocks().saturating_mul(512) {
        0 => facts.len(),
        allocated => facts.len().min(allocated),
    }
}

struct Memory {
    /// `/proc/self/statm`, in pages.
    statm: File,
    page_size: u64,
}

impl Memory {
    fn open() -> Option<Self> {
        let statm = File::open("/proc/self/statm").ok()?;
        let page_size = page_size(&fs::read("/proc/self/auxv").ok()?)?;
        Some(Self { statm, page_size })
    }

    /// Returns the resident memory without pages of files, in bytes. Pages of the program itself do
    /// not depend on the input, and an unoptimised program has more than 40 MiB of them.
    fn allocated(&self) -> Option<u64> {
        let mut text = [0; 128];
        let length = self.statm.read_at(&mut text, 0).ok()?;
        let text = str::from_utf8(text.get(..length)?).ok()?;
        let mut pages = text.split(' ').skip(1).map(str::parse::<u64>);
        let resident = pages.next()?.ok()?;
        let of_files = pages.next()?.ok()?;
        Some(resident.saturating_sub(of_files) * self.page_size)
    }
}

/// Reads the page size from the auxiliary vector, the key-value pairs that the kernel gives a new
/// process.
fn page_size(auxv: &[u8]) -> Option<u64> {
    const AT_PAGESZ: u64 = 6;
    let (numbers, _) = auxv.as_chunks::<8>();
    let (pairs, _) = numbers.as_chunks::<2>();
    let mut pairs = pairs.iter().map(|pair| pair.map(u64::from_ne_bytes));
    pairs
        .find(|[kind, _]| *kind == AT_PAGESZ)
        .map(|[_, size]| size)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::FileExt;
    use std::sync::Arc;

    use super::{Budget, Memory, size_of};

    #[test]
    fn allocated_memory_counts_without_pages_of_files() {
        const ALLOCATED: u64 = 64 << 20;
        let memory = Memory::open().unwrap();
        let bytes = vec![1_u8; usize::try_from(ALLOCATED).unwrap()];
        let allocated = memory.allocated().unwrap();
        drop(std::hint::black_box(bytes));
        assert!(allocated >= ALLOCATED, "{allocated}");
        // The kernel reports the pages of files, among them this program's, in another file too.
        let status = std::fs::read_to_string("/proc/self/status").unwrap();
        let mut lines = status.lines();
        let of_files = lines
            .find_map(|line| line.strip_prefix("RssFile:"))
            .unwrap();
        let of_files: u64 = of_files.trim().trim_end_matches(" kB").parse().unwrap();
        let resident = std::fs::read_to_string("/proc/self/statm").unwrap();
        let resident: u64 = resident.split(' ').nth(1).unwrap().parse().unwrap();
        let less = resident * memory.page_size - memory.allocated().unwrap();
        assert!(less > of_files * 1_024 / 2, "{less} {of_files}");
    }

    #[test]
    fn a_budget_grows_with_the_files() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("a"), [0; 1_000]).unwrap();
        std::fs::write(folder.path().join("b"), [0; 24]).unwrap();
        let size = size_of(folder.path());
        assert_eq!(size, 1_024);
        // Neither links nor holes in files count.
        std::os::unix::fs::symlink("/proc/self/exe", folder.path().join("c")).unwrap();
        let sparse = std::fs::File::create(folder.path().join("d")).unwrap();
        sparse.set_len(1 << 40).unwrap();
        sparse.write_at(b"x", 0).unwrap();
        assert!(size_of(folder.path()) < 1 << 20);
        let budget = Budget {
            size,
            base: 64 << 20,
            _held: Arc::default(),
        };
        assert_eq!(budget.most(), (64 << 20) + 20 * 1_024);
        assert_eq!(size_of(&folder.path().join("none")), 0);
    }
}
