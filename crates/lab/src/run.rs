//! One run: makes an initramfs for a kernel, boots both as a guest, and collects the results.

use std::fs;
use std::path::{Path, PathBuf};

use ticktax_store::disk::write_output;

use crate::error::LabError;
use crate::guest;
use crate::image::Image;
use crate::kernel::Kernel;
use crate::program;
use crate::qemu::{GuestSettings, Machine, Outcome, Stage, boot};

/// An additional program for a guest, besides PID 1.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Program {
    /// Its name in the guest.
    pub name: String,
    /// Its file on the host.
    pub file: PathBuf,
    /// Folder that is searched for its libraries before the host's folders. Libraries from there
    /// are placed next to the program.
    pub libraries: Option<PathBuf>,
}

/// A requested run: programs, and the guest to run them in.
#[derive(Clone, Copy, Debug)]
pub struct Run<'a> {
    /// The kernel to boot.
    pub kernel: &'a Kernel,
    /// The binary that runs as PID 1. It must call [`guest::run`] for the word [`guest::WORD`].
    pub program: &'a Path,
    /// The verb and its arguments. It runs in [`guest::OUT`] and leaves its results there.
    pub arguments: &'a [String],
    /// Programs that the verb runs; placed in [`guest::TOOLS`].
    pub programs: &'a [Program],
    /// Programs that run from the start of the verb to its end: the name of each as in `programs`,
    /// then its arguments. Their output is in the outcome's files.
    pub beside: &'a [Vec<String>],
    /// Exit codes other than 0 that come with a result.
    pub accepted: &'a [u8],
    /// Settings of the guest.
    pub settings: GuestSettings<'a>,
    /// Folder in which a temporary folder for this run may be created.
    pub scratch: &'a Path,
    /// File for the kernel's console output.
    pub console: Option<&'a Path>,
}

impl Run<'_> {
    /// Starts the run and waits for its end. `stop` returns whether to abort; `tell` receives
    /// progress.
    ///
    /// # Errors
    /// The guest cannot be made, does not end on its own, or ends without a result.
    pub fn start(
        &self,
        stop: &dyn Fn() -> bool,
        tell: &mut dyn FnMut(Stage),
    ) -> Result<Outcome, LabError> {
        let folder = tempfile::Builder::new()
            .prefix("ticktax-lab-")
            .tempdir_in(self.scratch)
            .map_err(LabError::file("create a folder in", self.scratch))?;
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
            // The guest's own error takes precedence.
            return outcome?
                .require(self.accepted)
                .and_then(|outcome| kept.map(|()| outcome));
        }
        outcome?.require(self.accepted)
    }

    /// The guest's files: the binary, its job, and the kernel's configuration.
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
