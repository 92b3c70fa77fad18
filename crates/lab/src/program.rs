//! Adds programs to an initramfs: the loadable part of the ELF file, and the libraries that the
//! program needs.

mod libraries;

use std::path::{Path, PathBuf};

use crate::arch::Arch;
use crate::error::LabError;
use crate::image::Image;
use crate::input;

/// Adds the program at `from` on the host to `image`, at the path `to`. The program must be for the
/// guest architecture `arch`. For a dynamically linked program, also adds the dynamic linker and
/// the libraries that it loads. Libraries are looked up in the directory `own` first. Any found
/// there are placed next to the program, which must then run with a matching `LD_LIBRARY_PATH`.
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
        let libraries = libraries::of_program(from, &bytes, &linker, own)
            .map_err(|why| refused(why.to_string()))?;
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
    // The program's author chose the path of its linker, so it could lead to any file. Only copy
    // the file into the guest if it is an ELF file.
    truncate_to_segments(&mut bytes, Arch::HOST).ok_or_else(|| LabError::File {
        what: "add to a guest",
        path: library.to_owned(),
        why: format!("it is not a library for {}", Arch::HOST),
    })?;
    Ok(image.file(to, &bytes)?)
}

/// Maximum size of a program or library, in MiB.
const MOST_MIB: u32 = 512;

fn read(file: &Path) -> Result<Vec<u8>, LabError> {
    input::read(file, MOST_MIB)
}

/// How an ELF file is linked.
#[derive(Debug, PartialEq, Eq)]
enum Elf {
    /// The file needs no libraries.
    Static,
    /// The file needs the dynamic linker at this path, and the libraries that the linker loads.
    Dynamic(PathBuf),
}

/// Truncates an ELF file after its last segment. The kernel loads only segments, and the rest is
/// mostly debug information. Returns how the file is linked. If `bytes` is not an ELF file for
/// `arch`, returns `None` and leaves `bytes` unchanged.
fn truncate_to_segments(bytes: &mut Vec<u8>, arch: Arch) -> Option<Elf> {
    const INTERPRETER: u32 = 3;
    // Check for the magic number, the 64-bit format and little-endian byte order.
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

#[cfg(test)]
mod tests {
    use std::io::ErrorKind;
    use std::os::unix::fs::PermissionsExt;

    use super::truncate_to_segments;
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
        // At this very moment, another test may be starting a process. That process holds the file
        // that was open for writing until it execs its program.
        let output = loop {
            match std::process::Command::new(&copy).arg("--list").output() {
                Err(error) if error.kind() == ErrorKind::ExecutableFileBusy => {}
                output => break output.unwrap(),
            }
        };
        let listed = String::from_utf8(output.stdout).unwrap();
        assert!(
            listed.contains("a_program_without_its_sections_runs"),
            "{listed}"
        );
    }

    #[test]
    fn files_that_are_not_programs_stay_unchanged() {
        for bytes in [&b"#!/bin/sh\n"[..], b"\x7fELF\x02\x01", b""] {
            let mut kept = bytes.to_vec();
            assert_eq!(truncate_to_segments(&mut kept, Arch::HOST), None);
            assert_eq!(kept, bytes);
        }
    }
}
