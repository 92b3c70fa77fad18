//! Finds the libraries that a dynamically linked program needs, without running anything.
//!
//! The dynamic linker can list the libraries (`ld.so --list`), but it would run code chosen by the
//! program's author: audit libraries named in the program (`DT_AUDIT`), or the linker itself
//! (`PT_INTERP`).

use std::collections::{BTreeSet, VecDeque};
use std::fs;
use std::path::{Path, PathBuf};

use object::LittleEndian;
use object::elf::{self, FileHeader64};
use object::read::elf::{Dyn, FileHeader, ProgramHeader};

use crate::arch::Arch;

const CONFIGURATION: &str = "/etc/ld.so.conf";
/// Directories that the dynamic linker searches last.
const STANDARD: [&str; 6] = [
    "/lib/x86_64-linux-gnu",
    "/lib/aarch64-linux-gnu",
    "/lib64",
    "/usr/lib64",
    "/lib",
    "/usr/lib",
];
/// Maximum number of libraries per program, and of configuration files to read. The limit exists
/// because a hostile program could name any number of libraries.
const MOST: usize = 1_024;

/// Why a program's libraries cannot be found. The message does not name the program.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum LibraryError {
    /// The program's list of libraries cannot be read.
    #[error("it is damaged")]
    DamagedProgram,
    /// A library's list of libraries cannot be read.
    #[error("{} is damaged", path.display())]
    Damaged { path: PathBuf },
    #[error("{name} => not found")]
    NotFound { name: String },
    #[error("it needs more than {MOST} libraries")]
    TooMany,
}

/// Returns the paths of the libraries that the dynamic linker at `linker` would load for the
/// program at `path`, whose contents are `bytes`. The directory `own` is searched first.
pub(super) fn of_program(
    path: &Path,
    bytes: &[u8],
    linker: &Path,
    own: Option<&Path>,
) -> Result<Vec<PathBuf>, LibraryError> {
    let mut general = Vec::new();
    configured(Path::new(CONFIGURATION), &mut general, &mut 0);
    general.extend(STANDARD.map(PathBuf::from));
    let mut found: Vec<PathBuf> = Vec::new();
    // The C library needs the linker itself. It has already been found, so don't search for it.
    let mut known: BTreeSet<String> = BTreeSet::new();
    known.extend(
        linker
            .file_name()
            .map(|name| name.to_string_lossy().into_owned()),
    );
    let mut open = VecDeque::from([needs(path, bytes).ok_or(LibraryError::DamagedProgram)?]);
    while let Some(file) = open.pop_front() {
        for name in file.names {
            if !known.insert(name.clone()) {
                continue;
            }
            if known.len() > MOST {
                return Err(LibraryError::TooMany);
            }
            let own = own.map(Path::to_owned);
            let folders = own.iter().chain(&file.folders).chain(&general);
            let library = folders.map(|folder| folder.join(&name));
            let library = library
                .filter_map(|library| Some((super::read(&library).ok()?, library)))
                .find(|(bytes, _)| is_for_host(bytes));
            let (bytes, library) = library.ok_or(LibraryError::NotFound { name })?;
            let damaged = || LibraryError::Damaged {
                path: library.clone(),
            };
            open.push_back(needs(&library, &bytes).ok_or_else(damaged)?);
            found.push(library);
        }
    }
    Ok(found)
}

/// Libraries that an ELF file needs.
#[derive(Debug, Default)]
struct Needs {
    names: Vec<String>,
    /// Library search paths listed in the file.
    folders: Vec<PathBuf>,
}

fn is_for_host(bytes: &[u8]) -> bool {
    let header = FileHeader64::<LittleEndian>::parse(bytes);
    header.is_ok_and(|header| header.e_machine.get(LittleEndian) == Arch::HOST.elf())
}

/// Finds out which libraries the ELF file at `path` needs. Returns `None` if the file is damaged.
fn needs(path: &Path, bytes: &[u8]) -> Option<Needs> {
    let header = FileHeader64::<LittleEndian>::parse(bytes).ok()?;
    let endian = header.endian().ok()?;
    let segments = header.program_headers(endian, bytes).ok()?;
    let dynamic = segments
        .iter()
        .find_map(|segment| segment.dynamic(endian, bytes).ok()?);
    let Some(dynamic) = dynamic else {
        return Some(Needs::default());
    };
    let values = |wanted: i64| {
        let entries = dynamic.iter();
        let entries = entries.filter(move |entry| entry.tag(endian) == wanted);
        entries.map(|entry| entry.d_val(endian))
    };
    let (table, size) = (
        values(elf::DT_STRTAB).next()?,
        values(elf::DT_STRSZ).next()?,
    );
    let strings = segments
        .iter()
        .find_map(|segment| segment.data_range(endian, bytes, table, size).ok()?)?;
    let text = |offset: u64| {
        let rest = strings.get(usize::try_from(offset).ok()?..)?;
        let end = rest.iter().position(|&byte| byte == 0)?;
        std::str::from_utf8(rest.get(..end)?).ok()
    };
    let mut needs = Needs::default();
    for offset in values(elf::DT_NEEDED) {
        // A library name with a slash would be used as a path, so treat the file as damaged.
        needs
            .names
            .push(text(offset).filter(|name| !name.contains('/'))?.to_owned());
    }
    let origin = path.parent()?.to_string_lossy().into_owned();
    for offset in values(elf::DT_RUNPATH).chain(values(elf::DT_RPATH)) {
        for folder in text(offset)?.split(':').filter(|folder| !folder.is_empty()) {
            let folder = folder
                .replace("$ORIGIN", &origin)
                .replace("${ORIGIN}", &origin);
            needs.folders.push(PathBuf::from(folder));
        }
    }
    Some(needs)
}

/// Adds the directories listed in one of the dynamic linker's configuration files to `folders`, and
/// follows the file's `include` lines. `read` counts the configuration files read so far.
fn configured(file: &Path, folders: &mut Vec<PathBuf>, read: &mut usize) {
    *read += 1;
    let Ok(text) = fs::read_to_string(file) else {
        return;
    };
    for line in text.lines() {
        let line = line.split('#').next().unwrap_or_default().trim();
        match line.strip_prefix("include ") {
            Some(pattern) => {
                let pattern = Path::new(pattern.trim());
                let entries = pattern
                    .parent()
                    .and_then(|folder| fs::read_dir(folder).ok());
                let mut files: Vec<PathBuf> = entries
                    .into_iter()
                    .flatten()
                    .filter_map(|entry| Some(entry.ok()?.path()))
                    .filter(|file| file.extension() == pattern.extension())
                    .collect();
                files.sort();
                for file in files {
                    if *read < MOST {
                        configured(&file, folders, read);
                    }
                }
            }
            None if line.starts_with('/') => folders.push(PathBuf::from(line)),
            None => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::ffi::OsString;
    use std::path::Path;
    use std::process::Command;

    use super::of_program;

    /// Returns the names of the libraries that the dynamic linker itself lists for a program.
    fn listed(linker: &Path, program: &Path) -> BTreeSet<OsString> {
        let output = Command::new(linker)
            .arg("--list")
            .arg(program)
            .output()
            .unwrap();
        let text = String::from_utf8(output.stdout).unwrap();
        let places = text
            .lines()
            .filter_map(|line| Some(line.split_once("=> ")?.1));
        let paths = places.map(|place| place.split(" (").next().unwrap().to_owned());
        paths
            .filter_map(|path| Some(Path::new(&path).file_name()?.to_owned()))
            .collect()
    }

    #[test]
    fn the_libraries_are_those_that_the_linker_lists() {
        let this_program = std::env::current_exe().unwrap();
        for program in [
            &*this_program,
            Path::new("/bin/sh"),
            Path::new("/usr/bin/env"),
        ] {
            let mut bytes = std::fs::read(program).unwrap();
            let elf = super::super::truncate_to_segments(&mut bytes, crate::arch::Arch::HOST);
            let Some(super::super::Elf::Dynamic(linker)) = elf else {
                continue;
            };
            let found = of_program(program, &bytes, &linker, None).unwrap();
            let names: BTreeSet<OsString> = found
                .iter()
                .filter_map(|library| Some(library.file_name()?.to_owned()))
                .collect();
            assert_eq!(names, listed(&linker, program), "{}", program.display());
        }
    }

    #[test]
    fn a_library_is_searched_in_the_own_directory_first() {
        let folder = tempfile::tempdir().unwrap();
        let this_program = std::env::current_exe().unwrap();
        let mut bytes = std::fs::read(&this_program).unwrap();
        let elf = super::super::truncate_to_segments(&mut bytes, crate::arch::Arch::HOST);
        let Some(super::super::Elf::Dynamic(linker)) = elf else {
            return;
        };
        let usual = of_program(&this_program, &bytes, &linker, None).unwrap();
        let libc = usual.iter().find(|library| library.ends_with("libc.so.6"));
        let Some(libc) = libc else {
            return;
        };
        let own = folder.path().join("libc.so.6");
        std::fs::copy(libc, &own).unwrap();
        let found = of_program(&this_program, &bytes, &linker, Some(folder.path())).unwrap();
        assert!(found.contains(&own), "{found:?}");
        // A file with a library's name must be skipped if it isn't a library.
        std::fs::write(&own, "not a library").unwrap();
        let found = of_program(&this_program, &bytes, &linker, Some(folder.path())).unwrap();
        assert!(found.contains(libc), "{found:?}");
    }
}
