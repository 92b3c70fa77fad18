//! Adds programs to an initramfs: the loadable part of the ELF file, and the libraries that it
//! needs.

use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use ticktax_host::{helper, is_root};
use ticktax_store::disk::{Folder, error_words};

use crate::arch::Arch;
use crate::error::LabError;
use crate::image::Image;

/// Adds the program at `from` to `image`, where its path is `to`, for a guest of architecture
/// `arch`. If the program is dynamic, also adds the dynamic linker and the libraries. The linker
/// searches the directory `own` first. Libraries found there are placed next to the program, which
/// must then run with a matching `LD_LIBRARY_PATH`.
///
/// # Errors
/// Returns an error if a file cannot be read, is not a program for `arch` or is too large, or if a
/// library is not found.
pub fn add(
    image: &mut Image,
    arch: Arch,
    to: &str,
    from: &Path,
    own: Option<&Path>,
) -> Result<(), LabError> {
    let mut bytes = read(from)?;
    let refused = |why: String| LabError::File {
        what: "add to a guest",
        path: from.to_owned(),
        why,
    };
    let program = truncate_to_segments(&mut bytes, arch)
        .ok_or_else(|| refused(format!("it is not an executable for {arch}")))?;
    image.file(to, &bytes)?;
    if let Elf::Dynamic(linker) = program {
        if arch != Arch::HOST {
            let why = format!(
                "it is not statically linked, and this machine has no libraries for {arch}"
            );
            return Err(refused(why));
        }
        let beside = to.rsplit_once('/').map_or("", |(folder, _)| folder);
        let libraries = libraries(&linker, from, own)?;
        for library in libraries.iter().chain([&linker]) {
            let name = own.and_then(|own| library.strip_prefix(own).ok());
            let to = name.map_or_else(|| library.clone(), |name| Path::new(beside).join(name));
            add_library(image, &to.to_string_lossy(), library)?;
        }
    }
    Ok(())
}

fn add_library(image: &mut Image, to: &str, library: &Path) -> Result<(), LabError> {
    if image.has(to) {
        return Ok(());
    }
    let mut bytes = read(library)?;
    // A file that is not ELF is added unchanged.
    let _ = truncate_to_segments(&mut bytes, Arch::HOST);
    Ok(image.file(to, &bytes)?)
}

fn read(file: &Path) -> Result<Vec<u8>, LabError> {
    fs::read(file).map_err(LabError::file("read", file))
}

/// Dependencies of an ELF file.
#[derive(Debug, PartialEq, Eq)]
enum Elf {
    /// No libraries.
    Static,
    /// The dynamic linker at this path, and the libraries that it loads.
    Dynamic(PathBuf),
}

/// Truncates an ELF file after its last segment. The kernel loads only segments, and the rest is
/// mostly debug information. If `bytes` is not an ELF file for `arch`, returns `None` and changes
/// nothing.
fn truncate_to_segments(bytes: &mut Vec<u8>, arch: Arch) -> Option<Elf> {
    const INTERPRETER: u32 = 3;
    // Check for the magic number, 64 bits and little-endian byte order.
    if !bytes.starts_with(b"\x7fELF\x02\x01") || half(bytes, 18)? != arch.elf() {
        return None;
    }
    let table = index(word(bytes, 32)?)?;
    let (size, count) = (half(bytes, 54)?.into(), half(bytes, 56)?.into());
    let mut end = table.checked_add(usize::checked_mul(size, count)?)?;
    let mut elf = Elf::Static;
    for header in (0..count).map(|n| table + n * size) {
        let from = index(word(bytes, header + 8)?)?;
        let until = from.checked_add(index(word(bytes, header + 32)?)?)?;
        end = end.max(until);
        let kind = u32::from_le_bytes(bytes.get(header..header + 4)?.try_into().ok()?);
        if kind == INTERPRETER {
            let name = bytes.get(from..until)?;
            let name = std::str::from_utf8(name).ok()?.trim_end_matches('\0');
            elf = Elf::Dynamic(PathBuf::from(name));
        }
    }
    if end > bytes.len() {
        return None;
    }
    bytes.truncate(end);
    // The section table has been cut off, so clear the header fields that refer to it.
    for gone in [40..48, 60..64] {
        bytes.get_mut(gone)?.fill(0);
    }
    Some(elf)
}

fn half(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_le_bytes(bytes.get(at..at + 2)?.try_into().ok()?))
}

fn word(bytes: &[u8], at: usize) -> Option<u64> {
    Some(u64::from_le_bytes(
        bytes.get(at..at.checked_add(8)?)?.try_into().ok()?,
    ))
}

fn index(offset: u64) -> Option<usize> {
    usize::try_from(offset).ok()
}

/// Lists the libraries that the dynamic linker would load for a program if `own` were an additional
/// library directory.
fn libraries(
    interpreter: &Path,
    program: &Path,
    own: Option<&Path>,
) -> Result<Vec<PathBuf>, LabError> {
    let shown = interpreter.display().to_string();
    check_linker(interpreter).map_err(|why| cannot_list(&shown, program, &why))?;
    let mut command = helper(interpreter);
    if let Some(own) = own {
        command.arg("--library-path").arg(own);
    }
    let output = command.arg("--list").arg(program).output();
    let output = output.map_err(|error| LabError::start(&shown, "libc6", &error))?;
    let text = String::from_utf8_lossy(&output.stdout);
    // The linker also lists the libraries that it did not find.
    let missing = text.lines().find(|line| line.ends_with("=> not found"));
    if let Some(why) = missing.map(str::trim) {
        return Err(cannot_list(&shown, program, why));
    }
    if !output.status.success() {
        let why = String::from_utf8_lossy(&output.stderr);
        return Err(cannot_list(&shown, program, why.trim()));
    }
    Ok(text.lines().filter_map(listed_library).collect())
}

/// Rejects dynamic linkers that root must not run. The linker's path is in the ELF file, so the
/// file's author chose it.
fn check_linker(linker: &Path) -> Result<(), String> {
    if !linker.is_absolute() {
        return Err("the path of its dynamic linker is not absolute".to_owned());
    }
    if !is_root() {
        return Ok(());
    }
    let words = |error: io::Error| error_words(&error);
    let real = fs::canonicalize(linker).map_err(words)?;
    let (Some(folder), Some(name)) = (real.parent(), real.file_name()) else {
        return Err("its dynamic linker is not a file".to_owned());
    };
    let folder = Folder::open_trusted(folder).map_err(words)?;
    let facts = folder.read(name).and_then(|file| file.metadata());
    let facts = facts.map_err(words)?;
    if facts.uid() != 0 || facts.mode() & 0o022 != 0 {
        return Err("users other than root can change its dynamic linker".to_owned());
    }
    Ok(())
}

fn cannot_list(linker: &str, program: &Path, why: &str) -> LabError {
    LabError::Tool {
        program: format!("{linker} --list {}", program.display()),
        why: why.to_owned(),
    }
}

/// Parses a line such as `libm.so.6 => /lib/x86_64-linux-gnu/libm.so.6 (0x00007f…)`. Returns `None`
/// for the vDSO, because it has no file.
fn listed_library(line: &str) -> Option<PathBuf> {
    let (_, place) = line.split_once("=> ")?;
    let path = place.split(" (").next()?.trim();
    path.starts_with('/').then(|| PathBuf::from(path))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;
    use std::path::{Path, PathBuf};

    use super::{check_linker, listed_library, truncate_to_segments};
    use crate::arch::Arch;

    #[test]
    fn a_program_without_its_sections_runs() {
        let this_program = std::env::current_exe().unwrap();
        let mut bytes = std::fs::read(&this_program).unwrap();
        let complete_length = bytes.len();
        for other in Arch::ALL.into_iter().filter(|&arch| arch != Arch::HOST) {
            assert_eq!(truncate_to_segments(&mut bytes, other), None);
        }
        assert!(truncate_to_segments(&mut bytes, Arch::HOST).is_some());
        assert!(
            bytes.len() < complete_length,
            "a test has debug information"
        );
        let folder = tempfile::tempdir().unwrap();
        let copy = folder.path().join("copy");
        std::fs::write(&copy, &bytes).unwrap();
        std::fs::set_permissions(&copy, std::fs::Permissions::from_mode(0o755)).unwrap();
        let output = std::process::Command::new(&copy)
            .arg("--list")
            .output()
            .unwrap();
        let listed = String::from_utf8(output.stdout).unwrap();
        assert!(
            listed.contains("a_program_without_its_sections_runs"),
            "{listed}"
        );
    }

    #[test]
    fn untrusted_linkers_are_refused() {
        assert!(check_linker(Path::new("ld.so")).is_err());
        let folder = tempfile::tempdir().unwrap();
        let planted = folder.path().join("ld.so");
        std::fs::write(&planted, "").unwrap();
        std::fs::set_permissions(&planted, std::fs::Permissions::from_mode(0o777)).unwrap();
        assert_eq!(check_linker(&planted).is_err(), ticktax_host::is_root());
    }

    #[test]
    fn files_that_are_not_programs_stay_unchanged() {
        for bytes in [&b"#!/bin/sh\n"[..], b"\x7fELF\x02\x01", b""] {
            let mut kept = bytes.to_vec();
            assert_eq!(truncate_to_segments(&mut kept, Arch::HOST), None);
            assert_eq!(kept, bytes);
        }
    }

    #[test]
    fn libraries_are_read_from_the_linkers_list() {
        let line = "\tlibm.so.6 => /lib/x86_64-linux-gnu/libm.so.6 (0x00007f2f)";
        let found = PathBuf::from("/lib/x86_64-linux-gnu/libm.so.6");
        assert_eq!(listed_library(line), Some(found));
        assert_eq!(listed_library("\tlinux-vdso.so.1 (0x00007ffd)"), None);
        assert_eq!(listed_library("\t/lib64/ld-linux-x86-64.so.2 (0x0)"), None);
        assert!(!Path::new("libm.so.6").is_absolute());
    }
}
