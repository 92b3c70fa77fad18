//! Builds a Debian package (deb(5)). It is an `ar` archive that contains a format version, a
//! tarball with information about the package, and a tarball with the package's files.

use std::collections::BTreeSet;
use std::fmt::Write;
use std::io::Write as _;

use flate2::{Compression, GzBuilder};
use md5::{Digest, Md5};

use super::{Built, Release, Texts, cannot};
use crate::{read, root};

/// Where the committed unit file expects the command, and where the package installs it.
const PLACES: (&str, &str) = ("/usr/local/bin/ticktax", "/usr/bin/ticktax");

/// Path, mode and contents of each file.
type Files = Vec<(String, u32, Vec<u8>)>;

/// Builds the package and returns its bytes.
pub(super) fn make(
    release: &Release,
    built: &Built,
    binary: &[u8],
    texts: &Texts,
) -> Result<Vec<u8>, String> {
    let files = files(built, binary, texts)?;
    let installed: usize = files
        .iter()
        .map(|(_, _, bytes)| bytes.len().div_ceil(1024))
        .sum();
    let control = control(&release.version, built.target.debian, installed);
    let sums = files
        .iter()
        .fold(String::new(), |mut sums, (path, _, bytes)| {
            for byte in Md5::digest(bytes) {
                // Writing to a string cannot fail.
                let _ = write!(sums, "{byte:02x}");
            }
            let _ = writeln!(sums, "  {path}");
            sums
        });
    let described = vec![
        ("control".to_owned(), 0o644, control.into_bytes()),
        ("md5sums".to_owned(), 0o644, sums.into_bytes()),
    ];
    let failed = |error| cannot("make", "a package".as_ref(), &error);
    let parts = [
        ("debian-binary", b"2.0\n".to_vec()),
        (
            "control.tar.gz",
            tarball(&described, release.time).map_err(failed)?,
        ),
        (
            "data.tar.gz",
            tarball(&files, release.time).map_err(failed)?,
        ),
    ];
    let mut archive = ar::Builder::new(Vec::new());
    for (name, bytes) in parts {
        let mut header = ar::Header::new(name.into(), bytes.len() as u64);
        header.set_mode(0o100_644);
        header.set_mtime(release.time);
        archive.append(&header, &*bytes).map_err(failed)?;
    }
    archive.into_inner().map_err(failed)
}

fn control(version: &str, arch: &str, kilobytes: usize) -> String {
    format!(
        "Package: ticktax\nVersion: {version}-1\nArchitecture: {arch}\n\
         Maintainer: The ticktax authors <ticktax@localhost>\nInstalled-Size: {kilobytes}\n\
         Section: admin\nPriority: optional\nDescription: audits CPU time like money\n \
         Who took CPU time from a program, how much, how often, and what could not be seen:\n \
         traced by BPF where that may be done, and by what /proc tells elsewhere.\n .\n \
         The agent, ticktax-agent.service, is installed and not started.\n"
    )
}

fn files(built: &Built, binary: &[u8], texts: &Texts) -> Result<Files, String> {
    let unit = text("contrib/systemd/ticktax-agent.service")?;
    let about = "usr/share/doc/ticktax";
    let mut files = vec![
        ("usr/bin/ticktax".to_owned(), 0o755, binary.to_vec()),
        (
            "usr/lib/systemd/system/ticktax-agent.service".to_owned(),
            0o644,
            unit_of_package(&unit).into_bytes(),
        ),
        (
            format!("{about}/copyright"),
            0o644,
            copyright()?.into_bytes(),
        ),
        (
            format!("{about}/changelog.gz"),
            0o644,
            packed(text("CHANGELOG.md")?.as_bytes()),
        ),
        (
            format!("{about}/licences.txt.gz"),
            0o644,
            packed(built.licences.as_bytes()),
        ),
        (
            format!("{about}/sbom.cdx.json.gz"),
            0o644,
            packed(built.sbom.as_bytes()),
        ),
    ];
    for (page, contents) in &texts.manual {
        let path = format!("usr/share/man/man1/{page}.gz");
        files.push((path, 0o644, packed(contents)));
    }
    for (path, contents) in &texts.completions {
        files.push(((*path).to_owned(), 0o644, contents.clone()));
    }
    files.sort();
    Ok(files)
}

/// Returns the unit file for the package. It leaves out the instructions for manual installation,
/// and has the path at which the package installs the command.
fn unit_of_package(unit: &str) -> String {
    let (from, to) = PLACES;
    let rest = unit.find("[Unit]").map_or(unit, |at| &unit[at..]);
    rest.replace(from, to)
}

fn copyright() -> Result<String, String> {
    let (mit, apache) = (text("LICENSE-MIT")?, text("LICENSE-APACHE")?);
    Ok(format!(
        "ticktax is under MIT or Apache-2.0, at your choice; what is linked into it, under the licences in\n\
         licences.txt.gz. The BPF programs in it are under MIT or GPL-2.0 for the kernel.\n\n{mit}\n\n{apache}"
    ))
}

fn text(file: &str) -> Result<String, String> {
    let bytes = read(file)?;
    String::from_utf8(bytes).map_err(|_| format!("{} is no text", root().join(file).display()))
}

/// Compresses bytes with gzip, without recording a time or a file name.
fn packed(bytes: &[u8]) -> Vec<u8> {
    let mut writer = GzBuilder::new().write(Vec::new(), Compression::best());
    // Writing to memory cannot fail.
    let _ = writer.write_all(bytes);
    writer.finish().unwrap_or_default()
}

/// Packs files and their directories into a compressed tarball. All entries belong to root and have
/// the same time.
fn tarball(files: &Files, time: u64) -> std::io::Result<Vec<u8>> {
    let mut archive = tar::Builder::new(Vec::new());
    let mut folders = BTreeSet::from(["./".to_owned()]);
    for (path, ..) in files {
        let parents = path
            .match_indices('/')
            .map(|(at, _)| format!("./{}/", &path[..at]));
        folders.extend(parents);
    }
    for folder in &folders {
        let mut header = header(time, 0o755, 0);
        header.set_entry_type(tar::EntryType::Directory);
        append(&mut archive, header, folder, &[])?;
    }
    for (path, mode, bytes) in files {
        let header = header(time, *mode, bytes.len() as u64);
        append(&mut archive, header, &format!("./{path}"), bytes)?;
    }
    Ok(packed(&archive.into_inner()?))
}

fn header(time: u64, mode: u32, size: u64) -> tar::Header {
    let mut header = tar::Header::new_gnu();
    header.set_mode(mode);
    header.set_size(size);
    header.set_mtime(time);
    header.set_uid(0);
    header.set_gid(0);
    // Both names fit into their fields, so these calls cannot fail.
    let _ = header.set_username("root");
    let _ = header.set_groupname("root");
    header
}

/// Adds an entry under exactly this name. The crate would strip the `./` that dpkg expects for the
/// root directory.
fn append(
    archive: &mut tar::Builder<Vec<u8>>,
    mut header: tar::Header,
    name: &str,
    bytes: &[u8],
) -> std::io::Result<()> {
    let field = &mut header.as_old_mut().name;
    let fits = field.get_mut(..name.len()).filter(|_| name.len() < 100);
    let field = fits.ok_or_else(|| std::io::Error::other(format!("{name} is too long a name")))?;
    field.copy_from_slice(name.as_bytes());
    header.set_cksum();
    archive.append(&header, bytes)
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::super::{Built, Release, Texts};
    use super::{make, unit_of_package};
    use crate::cross::TARGETS;

    fn package(time: u64) -> Vec<u8> {
        let release = Release {
            version: "1.2.3".to_owned(),
            time,
            folder: std::env::temp_dir(),
        };
        let built = Built {
            target: TARGETS[1],
            binary: "/nonexistent".into(),
            sbom: "{}".to_owned(),
            licences: "none".to_owned(),
        };
        let texts = Texts {
            manual: vec![("ticktax.1".to_owned(), b".TH ticktax 1\n".to_vec())],
            completions: vec![("usr/share/fish/vendor_completions.d/ticktax.fish", vec![1])],
        };
        make(&release, &built, b"the command", &texts).unwrap()
    }

    #[test]
    fn the_same_contents_give_the_same_bytes() {
        assert!(package(7) == package(7));
        assert!(package(7) != package(8));
    }

    #[test]
    fn dpkg_reads_the_package_if_dpkg_is_installed() {
        let folder = std::env::temp_dir().join(format!("ticktax-deb-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let file = folder.join("package.deb");
        std::fs::write(&file, package(1_700_000_000)).unwrap();
        let dpkg = |option: &str, rest: &[&str]| {
            let output = Command::new("dpkg-deb")
                .arg(option)
                .arg(&file)
                .args(rest)
                .output();
            let output = output.ok()?;
            let errors = String::from_utf8_lossy(&output.stderr).into_owned();
            assert!(output.status.success(), "{errors}");
            Some(String::from_utf8_lossy(&output.stdout).into_owned())
        };
        if let Some(arch) = dpkg("-f", &["Architecture"]) {
            assert_eq!(arch.trim(), "arm64");
            let listed = dpkg("-c", &[]).unwrap();
            assert!(listed.contains(" ./usr/bin/ticktax\n"), "{listed}");
            assert!(listed.contains("root/root"), "{listed}");
            assert!(
                listed.contains("./usr/share/man/man1/ticktax.1.gz"),
                "{listed}"
            );
            let out = folder.join("out").display().to_string();
            dpkg("-x", &[&out]).unwrap();
            let command = std::fs::read(folder.join("out/usr/bin/ticktax")).unwrap();
            assert_eq!(command, b"the command");
        }
        std::fs::remove_dir_all(&folder).unwrap();
    }

    #[test]
    fn the_unit_starts_the_packaged_command() {
        let unit =
            std::fs::read_to_string(crate::root().join("contrib/systemd/ticktax-agent.service"));
        let unit = unit_of_package(&unit.unwrap());
        assert!(unit.starts_with("[Unit]"), "{unit}");
        assert!(unit.contains("ExecStart=/usr/bin/ticktax agent"), "{unit}");
        assert!(!unit.contains("/usr/local"), "{unit}");
    }
}
