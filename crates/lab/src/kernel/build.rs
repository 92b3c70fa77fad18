//! Builds kernels that differ only in their tick rate.

use std::fs::{self, File};
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use nix::sys::signal::{Signal, killpg};
use nix::time::{ClockId, clock_gettime};
use nix::unistd::Pid;
use ticktax_host::helper;
use ticktax_model::Nanos;
use ticktax_model::kernels::BuiltKernel;

use super::cache::{Cache, Keep};
pub use super::source::KernelSource;
use super::source::{Source, extension, ready};
use super::tool::{last_words, run, sha256, text};
use super::{Kernel, Wanted, built_name};
use crate::arch::Arch;
use crate::error::LabError;
use crate::sys::end_with_parent;

/// Configuration, on top of `tinyconfig`, that the lab's kernels share on all architectures.
const FRAGMENT: &str = include_str!("../../kernel/fragment.config");
const AMD64: &str = include_str!("../../kernel/amd64.config");
const ARM64: &str = include_str!("../../kernel/arm64.config");
/// Tick rates that Linux offers without the lab's additions, in Hz.
const OFFERED: [u32; 4] = [100, 250, 300, 1000];
/// Tick rates that the lab can build, in Hz.
const RATES: std::ops::RangeInclusive<u32> = 24..=2000;
/// Debian packages that every build requires.
const TOOLS: &str = "make gcc flex bison bc libc6-dev libelf-dev";

/// Everything that defines a build, except the tick rate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Building<'a> {
    /// Architecture that the kernel is built for.
    pub arch: Arch,
    /// Kernel source.
    pub source: &'a KernelSource,
    /// Additional configuration: lines such as `CONFIG_X=y`.
    pub fragment: &'a str,
    /// Name of the additional configuration. It becomes part of the kernel's name: `hz250+NAME`.
    pub variant: Option<&'a str>,
    /// Number of parallel compiler processes.
    pub jobs: usize,
}

/// Calls [`build`] for each tick rate in turn.
///
/// # Errors
/// Returns an error before the first build if any of the rates cannot be built. If a later step
/// fails, the kernels built so far stay in the cache.
pub fn build_all(
    rates: &[u32],
    building: &Building<'_>,
    cache: &Cache,
    stop: &dyn Fn() -> bool,
    tell: &mut dyn FnMut(&str),
) -> Result<Vec<BuiltKernel>, LabError> {
    for &hz in rates {
        require_rate(hz)?;
    }
    let each = rates.iter();
    each.map(|&hz| build(hz, building, cache, stop, tell))
        .collect()
}

/// Builds the kernel with the tick rate `hz`, or takes it from the cache. Resumes an interrupted
/// build. `stop` returns `true` to cancel the build, and `tell` receives progress messages.
///
/// # Errors
/// Returns an error if a required tool is missing, if the source is invalid, if the build is
/// cancelled, or if compilation fails.
pub fn build(
    hz: u32,
    building: &Building<'_>,
    cache: &Cache,
    stop: &dyn Fn() -> bool,
    tell: &mut dyn FnMut(&str),
) -> Result<BuiltKernel, LabError> {
    let began = now();
    require_rate(hz)?;
    let arch = building.arch;
    let name = name(hz, building.variant, arch)?;
    require_tools(arch)?;
    let source = ready(building.source, cache, tell)?;
    let fragment = fragment(hz, arch, building.fragment);
    let key = key(&source, &fragment, arch)?;
    let origin = format!("Linux {} built as {key}", source.release);
    let built = |kernel: Kernel, compiled| BuiltKernel {
        name: kernel.name,
        release: source.release.clone(),
        hz,
        origin: format!("{} built as {key}", source.identity),
        image: kernel.image.display().to_string(),
        compiled,
        took: now() - began,
    };
    tell(&format!("{name}: looking for it in the cache"));
    if cache.is_from(&name, &origin)
        && let Some(kernel) = cache.kernel(&name)?
    {
        return Ok(built(kernel, false));
    }
    let _held = cache.hold(&name)?;
    let objects = cache.folder("build")?.join(format!("{name}-{key}"));
    fs::create_dir_all(&objects).map_err(LabError::file("create", &objects))?;
    let tree = BuildTree {
        source: &source,
        objects: &objects,
        arch,
    };
    if !objects.join("configured").exists() {
        tell(&format!("{name}: configuring"));
        tree.configure(&fragment)?;
    }
    tree.compile(building.jobs, &name, stop, tell)?;
    let config = objects.join(".config");
    cache.keep(&Keep {
        name: &name,
        release: &source.release,
        origin: &origin,
        image: &objects.join(arch.image().1),
        config: &fs::read(&config).map_err(LabError::file("read", &config))?,
    })?;
    let kernel = cache.kernel(&name)?;
    let kernel =
        kernel.ok_or_else(|| LabError::NoKernel(format!("{name} disappeared from the cache")))?;
    Ok(built(kernel, true))
}

fn now() -> Nanos {
    let time = clock_gettime(ClockId::CLOCK_MONOTONIC);
    let time = time.map_or(Duration::ZERO, Duration::from);
    Nanos(i64::try_from(time.as_nanos()).unwrap_or(i64::MAX))
}

fn require_rate(hz: u32) -> Result<(), LabError> {
    if RATES.contains(&hz) {
        return Ok(());
    }
    Err(LabError::Senseless(format!(
        "invalid tick rate {hz}: choose {} to {} Hz",
        RATES.start(),
        RATES.end()
    )))
}

fn name(hz: u32, variant: Option<&str>, arch: Arch) -> Result<String, LabError> {
    let bare = match variant {
        None => format!("hz{hz}"),
        Some(variant) => format!("hz{hz}+{variant}"),
    };
    let wanted = bare.parse().ok();
    let Some(wanted @ Wanted::Built(_)) = wanted else {
        return Err(LabError::Senseless(format!(
            "invalid kernel name {bare}: rename the configuration file, using only a-z, 0-9, +, -, \
             _ and ."
        )));
    };
    if let Some(arch) = wanted.arch() {
        return Err(LabError::Senseless(format!(
            "kernel name {bare} is reserved for {arch}: rename the configuration file"
        )));
    }
    Ok(built_name(&bare, arch))
}

/// Returns the complete configuration on top of `tinyconfig`. `more` comes last, so its settings
/// take precedence.
fn fragment(hz: u32, arch: Arch, more: &str) -> String {
    let arch_fragment = match arch {
        Arch::X86 => AMD64,
        Arch::Arm => ARM64,
    };
    let rate = if OFFERED.contains(&hz) {
        format!("CONFIG_HZ_{hz}=y\n")
    } else {
        format!("CONFIG_HZ_OTHER=y\nCONFIG_HZ_VALUE={hz}\n")
    };
    let more = more.trim();
    let end = if more.is_empty() { "" } else { "\n" };
    format!("{FRAGMENT}{arch_fragment}{more}{end}{rate}")
}

/// Returns a short digest of everything that influences the build.
fn key(source: &Source, fragment: &str, arch: Arch) -> Result<String, LabError> {
    let (compiler, packages) = compiler(arch);
    let compiler = run(helper(compiler).arg("--version"), &packages)?;
    let compiler = text(&compiler);
    let compiler = compiler.lines().next().unwrap_or_default();
    let all = [&source.identity, &extension(), fragment, compiler];
    Ok(sha256(all.join("\n").as_bytes())[..12].to_owned())
}

/// Returns the name of the compiler for `arch`, and the Debian packages that a build requires.
fn compiler(arch: Arch) -> (String, String) {
    if arch == Arch::HOST {
        return ("gcc".to_owned(), TOOLS.to_owned());
    }
    let package = format!("gcc-{}", arch.compilers().trim_end_matches('-'));
    // The compiler's prefix contains underscores, but Debian package names don't.
    let package = package.replace('_', "-");
    (
        format!("{}gcc", arch.compilers()),
        format!("{TOOLS} {package}"),
    )
}

fn require_tools(arch: Arch) -> Result<(), LabError> {
    let (compiler, packages) = compiler(arch);
    for tool in ["make", "gcc", &compiler, "flex", "bison", "bc"] {
        let mut command = helper(tool);
        command.arg("--version").stdin(Stdio::null());
        let output = command.output();
        output.map_err(|error| LabError::start(tool, &packages, &error))?;
    }
    Ok(())
}

/// The paths and the architecture that each of a build's `make` commands needs.
struct BuildTree<'a> {
    source: &'a Source,
    objects: &'a Path,
    arch: Arch,
}

impl BuildTree<'_> {
    /// Returns a `make` command. Its settings fix the build date, user and host in the kernel's
    /// version string, so that the same source always gives the same kernel.
    fn make(&self) -> Command {
        let mut make = helper("make");
        make.arg("-C")
            .arg(&self.source.folder)
            .arg(format!("O={}", self.objects.display()))
            .env("KBUILD_BUILD_TIMESTAMP", "2020-01-01")
            .env("KBUILD_BUILD_USER", "ticktax")
            .env("KBUILD_BUILD_HOST", "lab")
            .env("KBUILD_BUILD_VERSION", "1")
            .stdin(Stdio::null());
        if self.arch != Arch::HOST {
            make.arg(format!("ARCH={}", self.arch.source()))
                .arg(format!("CROSS_COMPILE={}", self.arch.compilers()));
        }
        make
    }

    fn configure(&self, fragment: &str) -> Result<(), LabError> {
        let objects = self.objects;
        let wanted = objects.join("fragment.config");
        fs::write(&wanted, fragment).map_err(LabError::file("write", &wanted))?;
        run(self.make().args(["-s", "tinyconfig"]), TOOLS)?;
        // `make tinyconfig` uses its own fragment, which would override `KCONFIG_ALLCONFIG`, so
        // merge the lab's configuration afterwards.
        let config = objects.join(".config");
        let mut merge = helper(self.source.folder.join("scripts/kconfig/merge_config.sh"));
        merge
            .arg("-m")
            .arg("-O")
            .arg(objects)
            .arg(&config)
            .arg(&wanted);
        run(
            merge.current_dir(&self.source.folder).stdin(Stdio::null()),
            TOOLS,
        )?;
        run(self.make().args(["-s", "olddefconfig"]), TOOLS)?;
        let came = fs::read_to_string(&config).map_err(LabError::file("read", &config))?;
        if let Some(refused) = first_refused(fragment, &came) {
            return Err(LabError::Senseless(format!(
                "this kernel cannot be built with {refused}: a setting that it depends on is not \
                 set; add it to the \
                 file"
            )));
        }
        let done = objects.join("configured");
        fs::write(&done, "").map_err(LabError::file("write", &done))
    }

    fn compile(
        &self,
        jobs: usize,
        name: &str,
        stop: &dyn Fn() -> bool,
        tell: &mut dyn FnMut(&str),
    ) -> Result<(), LabError> {
        let target = self.arch.image().0;
        let log: PathBuf = self.objects.join("log");
        let errors = File::create(&log).map_err(LabError::file("create", &log))?;
        let mut command = self.make();
        command
            .arg(format!("-j{}", jobs.max(1)))
            .arg(target)
            .stdout(Stdio::piped())
            .stderr(errors);
        let mut child = end_with_parent(&mut command)
            .spawn()
            .map_err(|error| LabError::start("make", TOOLS, &error))?;
        let mut interrupted = false;
        let mut steps = 0;
        if let Some(output) = child.stdout.take() {
            for line in BufReader::new(output).lines().map_while(Result::ok) {
                // Count the build steps, which are lines such as `  CC      kernel/fork.o`.
                if line.starts_with("  ") {
                    steps += 1;
                    tell(&format!(
                        "{name}: step {steps}, {}",
                        line.split_whitespace().last().unwrap_or("")
                    ));
                }
                if stop() {
                    interrupted = true;
                    let group = Pid::from_raw(i32::try_from(child.id()).unwrap_or(i32::MAX));
                    // If make has already exited, this fails harmlessly.
                    let _ = killpg(group, Signal::SIGTERM);
                    break;
                }
            }
        }
        let status = child.wait();
        if interrupted {
            return Err(LabError::Interrupted);
        }
        if status.is_ok_and(|status| status.success()) {
            return Ok(());
        }
        Err(LabError::Tool {
            program: format!("make {target}"),
            why: format!(
                "{}; all of it is in {}",
                last_words(&fs::read(&log).unwrap_or_default(), b""),
                log.display()
            ),
        })
    }
}

/// Returns the first option in `fragment` that is missing from `config`, or `None` if they are all
/// there. If the fragment sets an option more than once, only the last line counts. An option that
/// is off appears in `config` as a comment or not at all.
fn first_refused<'a>(fragment: &'a str, config: &str) -> Option<&'a str> {
    let mut last: Vec<&str> = Vec::new();
    for line in fragment.lines().filter(|line| line.starts_with("CONFIG_")) {
        let option = |line: &str| line.split('=').next().unwrap_or_default().to_owned();
        last.retain(|other| option(other) != option(line));
        last.push(line);
    }
    let has = |line: &str| match line.strip_suffix("=n") {
        Some(option) => !config.lines().any(|there| {
            let value = there
                .strip_prefix(option)
                .and_then(|rest| rest.strip_prefix('='));
            value.is_some_and(|value| value != "n")
        }),
        None => config.lines().any(|there| there == line),
    };
    last.into_iter().find(|line| !has(line))
}

#[cfg(test)]
mod tests {
    use super::{first_refused, fragment, name};
    use crate::arch::Arch;

    #[test]
    fn a_kernels_name_contains_its_variant_and_architecture() {
        assert_eq!(name(250, None, Arch::HOST).unwrap(), "hz250");
        assert_eq!(
            name(250, Some("rt_2.0"), Arch::HOST).unwrap(),
            "hz250+rt_2.0"
        );
        for other in Arch::ALL.into_iter().filter(|&arch| arch != Arch::HOST) {
            let kernel = name(250, Some("rt"), other).unwrap();
            assert_eq!(kernel, format!("hz250+rt+{other}"));
        }
        for wrong in ["arm64", "rt+amd64", "a b", "ä"] {
            assert!(name(250, Some(wrong), Arch::HOST).is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_fragment_ends_with_its_tick_rate() {
        for arch in Arch::ALL {
            assert!(fragment(250, arch, "").ends_with("=y\nCONFIG_HZ_250=y\n"));
        }
        let other = fragment(200, Arch::X86, "CONFIG_NET=y\n\n");
        assert!(other.ends_with("CONFIG_NET=y\nCONFIG_HZ_OTHER=y\nCONFIG_HZ_VALUE=200\n"));
    }

    #[test]
    fn a_refused_option_is_found() {
        let wanted = "CONFIG_A=y\nCONFIG_B=y\n# no\nCONFIG_A=n\n";
        assert_eq!(first_refused(wanted, "CONFIG_A=n\nCONFIG_B=y\n"), None);
        assert_eq!(
            first_refused(wanted, "CONFIG_A=y\nCONFIG_B=y\n"),
            Some("CONFIG_A=n")
        );
        let unset = "# CONFIG_A is not set\nCONFIG_AB=y\nCONFIG_B=y\n";
        assert_eq!(first_refused(wanted, unset), None);
        assert_eq!(first_refused(wanted, "CONFIG_A=n\n"), Some("CONFIG_B=y"));
    }
}
