//! `cargo xtask cross`: builds the command as a static program for each architecture.
//!
//! The clang that compiles the BPF objects also compiles the C code (zstd). It uses the headers in
//! Debian's musl-dev for the architecture, which apt downloads and verifies. rustc provides the
//! linker and the C library. Nothing is installed except Rust's libraries for the target. All files
//! are downloaded once and kept in target/cross.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::clang::tool;
use crate::root;

/// A target architecture.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Target {
    /// Debian's name of the architecture.
    pub(crate) debian: &'static str,
    /// Name of the architecture in Rust and in the kernel.
    pub(crate) machine: &'static str,
}

/// All architectures.
pub(crate) const TARGETS: [Target; 2] = [
    Target {
        debian: "amd64",
        machine: "x86_64",
    },
    Target {
        debian: "arm64",
        machine: "aarch64",
    },
];

impl Target {
    /// Returns the named targets, or all of them if `names` is empty.
    fn named(names: &[&str]) -> Result<Vec<Self>, String> {
        if names.is_empty() {
            return Ok(TARGETS.to_vec());
        }
        let find = |name: &&str| {
            let mut all = TARGETS.into_iter();
            all.find(|target| [target.debian, target.machine].contains(name))
                .ok_or_else(|| format!("{name} is no architecture: amd64 or arm64 is"))
        };
        names.iter().map(find).collect()
    }

    /// Returns Rust's target triple.
    pub(crate) fn triple(self) -> String {
        format!("{}-unknown-linux-musl", self.machine)
    }

    /// Builds the command with this profile in the directory `build`. Returns the path of the
    /// binary.
    pub(crate) fn build_into(self, build: &Path, profile: &str) -> Result<PathBuf, String> {
        self.build("ticktax", build, profile)
    }

    /// Builds a package that has a program of the same name.
    pub(crate) fn build(
        self,
        package: &str,
        build: &Path,
        profile: &str,
    ) -> Result<PathBuf, String> {
        fs::create_dir_all(build)
            .map_err(|error| format!("cannot make {}: {error}", build.display()))?;
        let headers = self.headers()?;
        let triple = self.triple();
        self.require_target()?;
        let name = triple.replace('-', "_");
        let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
        let mut command = Command::new(cargo);
        command
            .current_dir(root())
            .args(["build", "--locked", "--package", package])
            .args(["--profile", profile, "--target", &triple, "--target-dir"])
            .arg(build)
            .env(format!("CC_{name}"), tool("clang")?)
            .env(format!("AR_{name}"), tool("llvm-ar")?)
            .env(format!("CFLAGS_{name}"), self.c_flags(&headers))
            .env(linker_of(&name), "rust-lld")
            .env(flags_of(&name), rust_flags(build));
        let status = command
            .status()
            .map_err(|error| format!("cannot run cargo: {error}"))?;
        let program = build.join(format!("{triple}/{}/{package}", folder_of(profile)));
        if status.success() {
            Ok(program)
        } else {
            Err(format!("{package} was not built for {}", self.debian))
        }
    }

    fn c_flags(self, headers: &Path) -> String {
        format!(
            "--target={}-linux-musl -nostdlibinc -isystem {} -ffile-prefix-map={}=.",
            self.machine,
            headers.display(),
            root().display(),
        )
    }

    /// Returns the directory that contains the C library's headers, after downloading them if
    /// necessary.
    fn headers(self) -> Result<PathBuf, String> {
        let folder = root().join("target/cross").join(self.debian);
        let headers = folder.join(format!("files/usr/include/{}-linux-musl", self.machine));
        if headers.join("stdlib.h").is_file() {
            return absolute(&headers);
        }
        for part in ["lists/partial", "cache/archives/partial"] {
            let part = folder.join(part);
            fs::create_dir_all(&part)
                .map_err(|error| format!("cannot make {}: {error}", part.display()))?;
        }
        let folder = absolute(&folder)?;
        self.apt(&folder, &["update"])?;
        self.apt(&folder, &["download", "musl-dev"])?;
        let package = fs::read_dir(&folder)
            .map_err(|error| format!("cannot list {}: {error}", folder.display()))?
            .flatten()
            .map(|entry| entry.path())
            .find(|path| path.extension().is_some_and(|extension| extension == "deb"))
            .ok_or("apt-get brought no musl-dev")?;
        let mut unpack = Command::new("dpkg-deb");
        unpack.arg("-x").arg(&package).arg(folder.join("files"));
        run(&mut unpack)?;
        absolute(&headers)
    }

    /// Runs apt with separate package lists, which leaves the machine's own lists unchanged.
    fn apt(self, folder: &Path, words: &[&str]) -> Result<(), String> {
        let shown = folder.display();
        let options = [
            format!("APT::Architecture={}", self.debian),
            format!("APT::Architectures={}", self.debian),
            format!("Dir::State::Lists={shown}/lists"),
            format!("Dir::Cache={shown}/cache"),
            "Dir::State::Status=/dev/null".to_owned(),
            "APT::Sandbox::User=root".to_owned(),
        ];
        let mut apt = Command::new("apt-get");
        apt.current_dir(folder).arg("-qq");
        for option in options {
            apt.args(["-o", &option]);
        }
        run(apt.args(words))
    }

    /// Installs Rust's libraries for this target with rustup.
    fn require_target(self) -> Result<(), String> {
        let mut rustup = Command::new("rustup");
        rustup
            .current_dir(root())
            .args(["--quiet", "target", "add", &self.triple()]);
        run(&mut rustup)
    }
}

/// Returns the environment variable in which cargo looks for a target's linker.
fn linker_of(name: &str) -> String {
    format!("CARGO_TARGET_{}_LINKER", name.to_uppercase())
}

/// Returns the environment variable in which cargo looks for a target's rustc flags.
fn flags_of(name: &str) -> String {
    format!("CARGO_TARGET_{}_RUSTFLAGS", name.to_uppercase())
}

/// Returns flags that make rustc remove this machine's paths from the binary, so that builds are
/// reproducible.
fn rust_flags(build: &Path) -> String {
    let mut flags = vec![
        "-Clinker-flavor=ld.lld".to_owned(),
        "-Clink-self-contained=yes".to_owned(),
    ];
    let home = |variable: &str, folder: &str| {
        let set = std::env::var_os(variable).map(PathBuf::from);
        set.or_else(|| Some(PathBuf::from(std::env::var_os("HOME")?).join(folder)))
    };
    // If several rules match a path, the last one wins. A build in a different directory must
    // produce the same bytes as one in the usual directory.
    let usual = root().join("target");
    let other = (build != usual).then(|| absolute(build).ok()).flatten();
    let all = [
        (home("CARGO_HOME", ".cargo"), "/cargo"),
        (home("RUSTUP_HOME", ".rustup"), "/rustup"),
        (absolute(&root()).ok(), "/ticktax"),
        (other, "/ticktax/target"),
    ];
    for (path, name) in all {
        if let Some(path) = path {
            flags.push(format!("--remap-path-prefix={}={name}", path.display()));
        }
    }
    flags.join(" ")
}

/// Builds a package for this machine with this profile. Returns the path of its program.
pub(crate) fn build_here(package: &str, profile: &str) -> Result<PathBuf, String> {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut command = Command::new(cargo);
    command
        .current_dir(root())
        .args(["build", "--locked", "--package", package])
        .args(["--profile", profile, "--target-dir"])
        .arg(root().join("target"));
    run(&mut command)?;
    absolute(&root().join(format!("target/{}/{package}", folder_of(profile))))
}

/// Returns Cargo's output directory for a profile.
fn folder_of(profile: &str) -> &str {
    if profile == "dev" { "debug" } else { profile }
}

/// Parses a profile and the names of architectures. Without names, returns all architectures.
pub(crate) fn arguments<'a>(
    words: &[&'a str],
    profile: &'a str,
) -> Result<(&'a str, Vec<Target>), String> {
    let (options, names): (Vec<&str>, Vec<&str>) =
        words.iter().partition(|word| word.starts_with("--"));
    let profile = match options[..] {
        [] => profile,
        [option] => option
            .strip_prefix("--profile=")
            .ok_or_else(|| format!("{option} is not known: --profile=NAME is"))?,
        _ => return Err("one --profile=NAME is enough".to_owned()),
    };
    Ok((profile, Target::named(&names)?))
}

/// Builds the command and the test load generator for the named architectures.
pub(crate) fn build(words: &[&str]) -> Result<String, String> {
    let (profile, targets) = arguments(words, "release")?;
    let mut built = Vec::new();
    for target in targets {
        for package in ["ticktax", "ticktax-inject"] {
            let program = target.build(package, &root().join("target"), profile)?;
            built.push(absolute(&program)?.display().to_string());
        }
    }
    Ok(built.join("\n"))
}

fn absolute(path: &Path) -> Result<PathBuf, String> {
    fs::canonicalize(path).map_err(|error| format!("cannot find {}: {error}", path.display()))
}

/// Runs a program and waits for it. Fails if the program fails.
pub(crate) fn run(command: &mut Command) -> Result<(), String> {
    let name = command.get_program().to_string_lossy().into_owned();
    let status = command
        .status()
        .map_err(|error| format!("cannot run {name}: {error}"))?;
    if status.success() {
        Ok(())
    } else {
        Err(format!("{name} failed: {status}"))
    }
}

#[cfg(test)]
mod tests {
    use super::{TARGETS, Target, flags_of};

    #[test]
    fn architectures_have_debians_or_the_kernels_names() {
        assert_eq!(Target::named(&[]).unwrap().len(), TARGETS.len());
        let arm = Target::named(&["aarch64"]).unwrap();
        assert_eq!(arm, Target::named(&["arm64"]).unwrap());
        assert_eq!(arm[0].triple(), "aarch64-unknown-linux-musl");
        assert!(Target::named(&["riscv64"]).is_err());
        assert_eq!(
            flags_of("aarch64_unknown_linux_musl"),
            "CARGO_TARGET_AARCH64_UNKNOWN_LINUX_MUSL_RUSTFLAGS"
        );
    }
}
