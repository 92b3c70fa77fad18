//! `cargo xtask dist`: builds the release files for each architecture: a static binary, a Debian
//! package, an SBOM, and the licences.
//!
//! Times come from `SOURCE_DATE_EPOCH` or from the last commit, and no file contains a path on this
//! machine. The same source should therefore always produce the same bytes. `--check` verifies that
//! it does.

mod deb;
mod licences;
mod packages;
mod sbom;

use std::fmt::Write;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use sha2::{Digest, Sha256};

use crate::cross::{Target, arguments, build_here, run};
use crate::root;
use packages::Packages;

/// The parts of a release that are the same for all architectures.
struct Release {
    version: String,
    /// Release time to record, in seconds since 1970.
    time: u64,
    folder: PathBuf,
}

/// The build for one architecture.
struct Built {
    target: Target,
    binary: PathBuf,
    sbom: String,
    licences: String,
}

/// Builds all release files in target/dist-files. With `--check`, builds them twice and compares
/// the results.
pub(crate) fn make(words: &[&str]) -> Result<String, String> {
    let check = words.contains(&"--check");
    let words: Vec<&str> = words
        .iter()
        .copied()
        .filter(|word| *word != "--check")
        .collect();
    let (profile, targets) = arguments(&words, "dist")?;
    let time = source_time()?;
    let make = |files: &str, under: &str| {
        let (files, under) = (root().join(files), root().join(under));
        release(&files, &under, profile, &targets, time)
    };
    let first = make("target/dist-files", "target")?;
    if !check {
        return Ok(first.join("\n"));
    }
    let second = make("target/dist-files-again", "target/dist-again")?;
    for (one, other) in first.iter().zip(&second) {
        if one != other {
            return Err(format!("two builds differ:\n{one}\n{other}"));
        }
    }
    Ok(format!(
        "{}\ntwo builds gave the same bytes",
        first.join("\n")
    ))
}

/// Builds the release files for each of `targets`. Returns each file's digest and name.
fn release(
    folder: &Path,
    under: &Path,
    profile: &str,
    targets: &[Target],
    time: u64,
) -> Result<Vec<String>, String> {
    // Remove the files from an earlier build.
    drop(fs::remove_dir_all(folder));
    fs::create_dir_all(folder).map_err(|error| cannot("make", folder, &error))?;
    let texts = Texts::of_host(folder)?;
    let mut made = Vec::new();
    for &target in targets {
        let packages = Packages::resolve(target)?;
        let release = Release {
            version: packages.own_version().to_owned(),
            time,
            folder: folder.to_owned(),
        };
        let one = Built {
            target,
            binary: target.build_into(under, profile)?,
            sbom: sbom::make(&packages, release.time),
            licences: licences::make(&packages)?,
        };
        made.extend(release.write(&one, &texts)?);
    }
    let mut sums = String::new();
    for file in &made {
        let bytes = fs::read(folder.join(file)).map_err(|error| cannot("read", file, &error))?;
        let digest = Sha256::digest(&bytes);
        for byte in digest {
            // Writing to a string cannot fail.
            let _ = write!(sums, "{byte:02x}");
        }
        let _ = writeln!(sums, "  {}", file.display());
    }
    write(&folder.join("SHA256SUMS"), sums.as_bytes())?;
    Ok(sums.lines().map(str::to_owned).collect())
}

impl Release {
    /// Writes the files for one architecture.
    fn write(&self, built: &Built, texts: &Texts) -> Result<Vec<PathBuf>, String> {
        let binary =
            fs::read(&built.binary).map_err(|error| cannot("read", &built.binary, &error))?;
        let arch = built.target.debian;
        let stem = format!("ticktax-{}-{arch}", self.version);
        let mut files = vec![
            (stem.clone(), binary.clone()),
            (format!("{stem}.cdx.json"), built.sbom.clone().into_bytes()),
            (
                format!("{stem}.licences.txt"),
                built.licences.clone().into_bytes(),
            ),
        ];
        let package = deb::make(self, built, &binary, texts)?;
        files.push((format!("ticktax_{}-1_{arch}.deb", self.version), package));
        let mut made = Vec::new();
        for (name, bytes) in files {
            let path = self.folder.join(&name);
            write(&path, &bytes)?;
            if name == stem {
                executable(&path)?;
            }
            made.push(PathBuf::from(name));
        }
        Ok(made)
    }
}

/// Manual pages and shell completions, with their names. They are the same on every architecture.
struct Texts {
    manual: Vec<(String, Vec<u8>)>,
    completions: Vec<(&'static str, Vec<u8>)>,
}

impl Texts {
    /// Generates the texts with a build for this machine, because they do not depend on the target.
    fn of_host(folder: &Path) -> Result<Self, String> {
        let binary = build_here("ticktax", "dev")?;
        let pages = folder.join("man");
        run(Command::new(&binary).arg("man").arg("--folder").arg(&pages))?;
        let mut manual = Vec::new();
        let listing = fs::read_dir(&pages).map_err(|error| cannot("list", &pages, &error))?;
        for entry in listing.flatten() {
            let page = fs::read(entry.path()).map_err(|error| cannot("read", &pages, &error))?;
            manual.push((entry.file_name().to_string_lossy().into_owned(), page));
        }
        manual.sort();
        fs::remove_dir_all(&pages).map_err(|error| cannot("remove", &pages, &error))?;
        let mut completions = Vec::new();
        for (shell, file) in [
            ("bash", "usr/share/bash-completion/completions/ticktax"),
            ("zsh", "usr/share/zsh/vendor-completions/_ticktax"),
            ("fish", "usr/share/fish/vendor_completions.d/ticktax.fish"),
        ] {
            let output = Command::new(&binary).args(["completions", shell]).output();
            let output = output.map_err(|error| cannot("run", &binary, &error))?;
            completions.push((file, output.stdout));
        }
        Ok(Self {
            manual,
            completions,
        })
    }
}

/// Returns when the source was last changed, in seconds since 1970.
fn source_time() -> Result<u64, String> {
    let text = if let Ok(text) = std::env::var("SOURCE_DATE_EPOCH") {
        text
    } else {
        let mut git = Command::new("git");
        git.current_dir(root()).args(["log", "-1", "--format=%ct"]);
        let output = git
            .output()
            .map_err(|error| format!("cannot run git: {error}"))?;
        String::from_utf8_lossy(&output.stdout).into_owned()
    };
    let time = text.trim().parse();
    time.map_err(|_| "no commit has a time here: set SOURCE_DATE_EPOCH, in s since 1970".to_owned())
}

fn write(path: &Path, bytes: &[u8]) -> Result<(), String> {
    fs::write(path, bytes).map_err(|error| cannot("write", path, &error))
}

fn executable(path: &Path) -> Result<(), String> {
    use std::os::unix::fs::PermissionsExt;
    let mode = fs::Permissions::from_mode(0o755);
    fs::set_permissions(path, mode).map_err(|error| cannot("write", path, &error))
}

/// Formats an error: `what` failed for `path`.
fn cannot(what: &str, path: &Path, error: &std::io::Error) -> String {
    format!("cannot {what} {}: {error}", path.display())
}
