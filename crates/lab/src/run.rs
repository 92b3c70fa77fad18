//! Runs a verb in a guest: builds the initramfs, boots it with a kernel, and collects the results.

use std::fs;
use std::path::{Path, PathBuf};

use ticktax_store::disk::{Folder, write_output};

use crate::error::LabError;
use crate::guest;
use crate::image::Image;
use crate::kernel::Kernel;
use crate::program;
use crate::qemu::{GuestSettings, Machine, Outcome, Stage, boot};

/// A program that goes into the guest in addition to ticktax.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Program {
    /// Name of the program in the guest.
    pub name: String,
    /// Path of the program on the host.
    pub file: PathBuf,
    /// Directory to search for the program's libraries before the host's directories. Libraries
    /// found there are placed next to the program.
    pub libraries: Option<PathBuf>,
}

/// A file that goes into the guest unchanged.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GuestFile {
    /// Name of the file in the guest.
    pub name: String,
    /// Path of the file on the host.
    pub file: PathBuf,
}

/// A verb to run in a guest, with the programs and settings that it needs.
#[derive(Clone, Copy, Debug)]
pub struct GuestRun<'a> {
    /// Kernel to boot.
    pub kernel: &'a Kernel,
    /// Binary to run as PID 1. When its first argument is [`guest::WORD`], it must call
    /// [`guest::run`].
    pub program: &'a Path,
    /// The verb and its arguments. Its working directory is [`guest::OUT`].
    pub arguments: &'a [String],
    /// Programs that the verb needs. They are placed in [`guest::TOOLS`].
    pub programs: &'a [Program],
    /// Files that the verb needs, such as modules of the kernel. They are placed in
    /// [`guest::TOOLS`].
    pub files: &'a [GuestFile],
    /// Command lines to run alongside the verb. Each starts with the name of one of `programs`. The
    /// commands' output is among the files of the outcome.
    pub beside: &'a [Vec<String>],
    /// Exit codes, in addition to 0, with which the verb still has produced a result.
    pub accepted: &'a [u8],
    /// The guest's settings.
    pub settings: GuestSettings<'a>,
    /// Directory for temporary files. Other users must not be able to replace files in it.
    pub scratch: &'a Path,
    /// File that receives a copy of the console output.
    pub console: Option<&'a Path>,
}

impl GuestRun<'_> {
    /// Runs the guest and waits until it finishes. `stop` returns `true` to cancel the guest, and
    /// `tell` receives its progress.
    ///
    /// # Errors
    /// Returns an error if the guest cannot be set up, does not finish, or finishes without a
    /// result.
    pub fn start(
        &self,
        stop: &dyn Fn() -> bool,
        tell: &mut dyn FnMut(Stage),
    ) -> Result<Outcome, LabError> {
        // Check that no other user can modify the directory, because its files are opened by path,
        // and QEMU opens them much later.
        Folder::open_guarded(self.scratch).map_err(LabError::file("use", self.scratch))?;
        let folder = tempfile::Builder::new()
            .prefix("ticktax-lab-")
            .tempdir_in(self.scratch)
            .map_err(LabError::file("create a directory in", self.scratch))?;
        let initramfs = folder.path().join("initramfs");
        fs::write(&initramfs, self.initramfs()?).map_err(LabError::file("write", &initramfs))?;
        let machine = Machine {
            arch: self.kernel.arch,
            kernel: &self.kernel.image,
            pages_of_16k: self.kernel.has_pages_of_16k(),
            initramfs: &initramfs,
            settings: self.settings,
        };
        let outcome = boot(&machine, folder.path(), stop, tell);
        if let Some(keep) = self.console {
            let console = folder.path().join("console");
            let kept = fs::read(console).and_then(|words| write_output(keep, &words));
            let kept = kept.map_err(LabError::file("write", keep));
            // An error from the guest itself takes precedence over an error from copying the
            // console output.
            return outcome?
                .require(self.accepted)
                .and_then(|outcome| kept.map(|()| outcome));
        }
        outcome?.require(self.accepted)
    }

    /// Builds the initramfs, which contains the binary, its command line, the programs, and the
    /// kernel's configuration.
    fn initramfs(&self) -> Result<Vec<u8>, LabError> {
        let mut image = Image::new();
        for folder in ["proc", "sys", "tmp", "lab/out"] {
            image.folder(folder);
        }
        let arch = self.kernel.arch;
        program::add(&mut image, arch, "init", self.program, None)?;
        for Program {
            name,
            file,
            libraries,
        } in self.programs
        {
            let to = format!("{}/{name}", guest::TOOLS.trim_start_matches('/'));
            program::add(&mut image, arch, &to, file, libraries.as_deref())?;
        }
        for GuestFile { name, file } in self.files {
            let to = format!("{}/{name}", guest::TOOLS.trim_start_matches('/'));
            let contents = fs::read(file).map_err(LabError::file("read", file))?;
            image.file(&to, &contents)?;
        }
        let mut job = b"/init\0".to_vec();
        for argument in self.arguments {
            job.extend_from_slice(argument.as_bytes());
            job.push(0);
        }
        image.file(guest::JOB, &job)?;
        let mut beside = Vec::new();
        for words in self.beside {
            beside.extend_from_slice(guest::TOOLS.as_bytes());
            beside.push(b'/');
            for word in words {
                beside.extend_from_slice(word.as_bytes());
                beside.push(0);
            }
            beside.push(0);
        }
        if !beside.is_empty() {
            image.file(guest::BESIDE, &beside)?;
        }
        if let Some((release, config)) = &self.kernel.config {
            image.file(&format!("boot/config-{release}"), config)?;
        }
        Ok(image.finish())
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::chown;
    use std::time::Duration;

    use nix::unistd::geteuid;

    use super::*;
    use crate::arch::Arch;
    use crate::qemu::Clock;

    /// The directory's owner could replace the files that QEMU opens.
    #[test]
    fn a_temporary_directory_of_another_user_is_refused() {
        if !geteuid().is_root() {
            return;
        }
        let theirs = tempfile::tempdir().unwrap();
        chown(theirs.path(), Some(65_534), None).unwrap();
        let kernel = Kernel {
            name: "a kernel".to_owned(),
            arch: Arch::HOST,
            image: PathBuf::from("/nonexistent"),
            config: None,
        };
        let run = GuestRun {
            kernel: &kernel,
            program: Path::new("/proc/self/exe"),
            arguments: &[],
            programs: &[],
            files: &[],
            beside: &[],
            accepted: &[],
            settings: GuestSettings {
                cmdline: "",
                cpus: 1,
                memory: 64,
                clock: Clock::Tcg,
                limit: Duration::from_secs(1),
                count: false,
                debugger: None,
                disk: None,
            },
            scratch: theirs.path(),
            console: None,
        };
        let refused = run.start(&|| true, &mut |_| {}).unwrap_err().to_string();
        assert!(refused.contains("belongs to user 65534"), "{refused}");
        assert_eq!(fs::read_dir(theirs.path()).unwrap().count(), 0);
    }
}
