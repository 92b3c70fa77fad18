//! Errors that explain why the tracer could not be loaded.

use std::path::{Path, PathBuf};
use std::{fs, io};

use nix::errno::Errno;
use nix::sys::resource::{Resource, getrlimit};
use ticktax_model::limitation::HookMissing;

/// The reason why the capability level `kernel` is unavailable. Each message says what was tried,
/// why it failed and what would help.
#[derive(Debug, thiserror::Error)]
pub enum TraceError {
    /// The caller has no right to load BPF programs.
    #[error(
        "only root can trace the kernel; run as root, or grant CAP_BPF, CAP_PERFMON and \
         CAP_SYSLOG (for function names)"
    )]
    NotPermitted,
    /// Even root has no right to load BPF programs.
    #[error(
        "root cannot trace the kernel here: a container, security module or bounding set denies \
         CAP_BPF or CAP_PERFMON; grant both, or run outside the container"
    )]
    RootNotPermitted,
    /// The kernel is locked down.
    #[error(
        "kernel lockdown ({mode}) prevents BPF from reading kernel memory; boot without \
         lockdown=confidentiality"
    )]
    LockedDown {
        /// Active lockdown mode, as spelled in `/sys/kernel/security/lockdown`.
        mode: String,
    },
    /// The kernel's BTF exists but cannot be read.
    #[error("cannot read the kernel's type information (BTF) in {path}: {why}")]
    UnreadableBtf {
        /// Path of the BTF file.
        path: PathBuf,
        /// The operating system's reason.
        why: io::ErrorKind,
    },
    /// The kernel has no BTF.
    #[error(
        "this kernel has no type information (BTF) in {path}; use Linux 5.10 or later built with \
         CONFIG_DEBUG_INFO_BTF=y"
    )]
    NoBtf {
        /// Path at which the BTF was expected.
        path: PathBuf,
    },
    /// The kernel's BTF cannot be parsed.
    #[error("cannot parse the kernel's type information (BTF) in {path}: {why}")]
    BadBtf {
        /// Path of the BTF file.
        path: PathBuf,
        /// The parser's error.
        why: String,
    },
    /// The kernel was built without BPF support.
    #[error("this kernel was built without BPF; use a kernel with CONFIG_BPF_SYSCALL=y")]
    NoBpf,
    /// There is not enough memory for the tracer's buffers.
    #[error(
        "cannot allocate {bytes} bytes for the tracer's buffers; raise the cgroup's memory limit \
         or, before Linux 5.11, RLIMIT_MEMLOCK (`ulimit -l`)"
    )]
    NoMemory {
        /// Total size of the buffers.
        bytes: u64,
    },
    /// The process has reached its limit on open files.
    #[error(
        "the limit of {limit} open files is too low for the tracer; raise it (`ulimit -n 1024`, or \
         LimitNOFILE=1024 in a systemd unit)"
    )]
    TooManyFiles {
        /// Current limit.
        limit: u64,
    },
    /// The kernel rejected the BPF programs.
    #[error("the kernel rejected the tracer's programs: {why}")]
    Refused {
        /// The kernel's reason, in one line.
        why: String,
    },
    /// `sched_switch` cannot be traced. Without it, no CPU time can be accounted for.
    #[error("cannot attach to the tracepoint sched_switch: {why}")]
    NoSwitches {
        /// Why it cannot be traced.
        why: HookMissing,
    },
    /// The machine has more CPUs than the BPF programs' tables can hold.
    #[error("this machine has {cpus} CPUs, but the tracer supports at most {room}")]
    TooManyCpus {
        /// Number of possible CPUs.
        cpus: usize,
        /// Number of CPUs that the tables can hold.
        room: usize,
    },
}

impl TraceError {
    /// Finds the reason for an error that occurred while loading the tracer with buffers of this
    /// size.
    pub(crate) fn from_loading(error: &(dyn std::error::Error + 'static), bytes: u64) -> Self {
        if no_file_can_be_opened() {
            return Self::too_many_files();
        }
        let lockdown = fs::read_to_string("/sys/kernel/security/lockdown").unwrap_or_default();
        let root = nix::unistd::geteuid().is_root();
        Self::judge(error, bytes, root, mode_in_force(&lockdown))
    }

    /// Finds the reason for an error from the caller's rights and the lockdown mode. Only the mode
    /// `confidentiality` forbids reading kernel memory. In that mode, the verifier rejects the
    /// helper that reads it, and so reports the program as invalid.
    fn judge(
        error: &(dyn std::error::Error + 'static),
        bytes: u64,
        root: bool,
        lockdown: Option<String>,
    ) -> Self {
        if io_cause(error).is_some_and(is_out_of_files) {
            return Self::too_many_files();
        }
        let confidential = lockdown.filter(|mode| mode == "confidentiality");
        match (io_cause(error).map(io::Error::kind), confidential) {
            (Some(io::ErrorKind::PermissionDenied), _) if !root => Self::NotPermitted,
            (Some(io::ErrorKind::PermissionDenied), None) => Self::RootNotPermitted,
            (Some(io::ErrorKind::PermissionDenied | io::ErrorKind::InvalidInput), Some(mode)) => {
                Self::LockedDown { mode }
            }
            (Some(io::ErrorKind::OutOfMemory), _) => Self::NoMemory { bytes },
            (Some(io::ErrorKind::Unsupported), _) => Self::NoBpf,
            _ => Self::Refused {
                why: one_line(error),
            },
        }
    }
}

impl TraceError {
    /// Returns the error for a process that has reached its limit on open files.
    pub(crate) fn too_many_files() -> Self {
        let limit = getrlimit(Resource::RLIMIT_NOFILE).map_or(0, |(soft, _)| soft);
        Self::TooManyFiles { limit }
    }
}

/// Returns whether a system call failed because of the limit on open files.
fn is_out_of_files(error: &io::Error) -> bool {
    error.raw_os_error() == Some(Errno::EMFILE as i32)
}

/// Returns whether this process has no free file descriptor.
///
/// When a program cannot be loaded, aya hides EMFILE. It retries with a buffer for the verifier's
/// log, and returns the EINVAL from that second attempt.
pub(crate) fn no_file_can_be_opened() -> bool {
    fs::File::open("/").is_err_and(|error| is_out_of_files(&error))
}

/// Reads the kernel's BTF.
pub(crate) fn read_types(path: &Path) -> Result<Vec<u8>, TraceError> {
    fs::read(path).map_err(|error| {
        let path = path.to_owned();
        match error.kind() {
            _ if is_out_of_files(&error) => TraceError::too_many_files(),
            io::ErrorKind::NotFound => TraceError::NoBtf { path },
            why => TraceError::UnreadableBtf { path, why },
        }
    })
}

/// Returns the I/O error among an error's causes, or `None` if no cause is an I/O error.
fn io_cause<'a>(error: &'a (dyn std::error::Error + 'static)) -> Option<&'a io::Error> {
    let mut cause = Some(error);
    while let Some(error) = cause {
        if let Some(io) = error.downcast_ref::<io::Error>() {
            return Some(io);
        }
        cause = error.source();
    }
    None
}

/// Formats an error and its causes on one line. Omits the verifier's log and error numbers.
pub(crate) fn one_line(error: &(dyn std::error::Error + 'static)) -> String {
    let mut words = Vec::new();
    let mut cause = Some(error);
    while let Some(error) = cause {
        let text = error.to_string();
        let text = text.lines().next().unwrap_or_default();
        let text = text.split(" Verifier output:").next().unwrap_or_default();
        let text = text
            .split(" (os error")
            .next()
            .unwrap_or_default()
            .trim_end_matches('.');
        if !words.iter().any(|word: &String| word.contains(text)) {
            words.push(text.to_owned());
        }
        cause = error.source();
    }
    words.join(": ")
}

/// Returns the lockdown mode in brackets in `modes`, which is text such as `none [integrity]
/// confidentiality`. Returns `None` if that mode is `none`.
fn mode_in_force(modes: &str) -> Option<String> {
    let mode = modes.split('[').nth(1)?.split(']').next()?;
    (mode != "none").then(|| mode.to_owned())
}

#[cfg(test)]
mod tests {
    use std::io;

    use std::path::Path;

    use nix::errno::Errno;

    use super::{TraceError, mode_in_force, one_line, read_types};

    #[test]
    fn a_lockdown_is_reported_with_its_mode() {
        let mode = mode_in_force("none integrity [confidentiality]\n").unwrap();
        let text = TraceError::LockedDown { mode }.to_string();
        assert!(
            text.contains("(confidentiality)") && !text.contains('\n'),
            "{text}"
        );
        assert_eq!(mode_in_force("[none] integrity confidentiality\n"), None);
        assert_eq!(mode_in_force(""), None);
    }

    #[test]
    fn a_process_without_free_descriptors_gets_its_own_error() {
        let full = io::Error::from_raw_os_error(Errno::EMFILE as i32);
        let text = TraceError::judge(&full, 64, true, None).to_string();
        assert!(text.contains("open files"), "{text}");
        assert!(text.contains("ulimit -n"), "{text}");
    }

    #[test]
    fn only_a_missing_btf_file_means_that_the_kernel_has_none() {
        let absent = read_types(Path::new("/nonexistent/vmlinux"));
        assert!(
            matches!(absent, Err(TraceError::NoBtf { .. })),
            "{absent:?}"
        );
        // A directory exists, but cannot be read like a file.
        let unreadable = read_types(Path::new("/"));
        assert!(
            matches!(unreadable, Err(TraceError::UnreadableBtf { .. })),
            "{unreadable:?}"
        );
    }

    #[test]
    fn system_errors_map_to_their_causes() {
        use io::ErrorKind::{InvalidInput, OutOfMemory, PermissionDenied, Unsupported};

        let judged = |kind, root, mode: Option<&str>| {
            TraceError::judge(&io::Error::from(kind), 64, root, mode.map(str::to_owned))
        };
        let [integrity, confidentiality] = ["integrity", "confidentiality"].map(Some);
        assert!(matches!(
            judged(OutOfMemory, true, None),
            TraceError::NoMemory { bytes: 64 }
        ));
        assert!(matches!(judged(Unsupported, true, None), TraceError::NoBpf));
        assert!(matches!(
            judged(InvalidInput, true, None),
            TraceError::Refused { .. }
        ));
        // If the user is not root, the reported reason is missing rights, even if Secure Boot has
        // locked down the kernel.
        for mode in [None, integrity, confidentiality] {
            let error = judged(PermissionDenied, false, mode);
            assert!(matches!(error, TraceError::NotPermitted), "{mode:?}");
        }
        assert!(matches!(
            judged(PermissionDenied, true, integrity),
            TraceError::RootNotPermitted
        ));
        for kind in [PermissionDenied, InvalidInput] {
            let error = judged(kind, true, confidentiality);
            assert!(matches!(error, TraceError::LockedDown { .. }), "{kind:?}");
        }
        let odd = io::Error::from_raw_os_error(7);
        assert!(!one_line(&odd).contains("os error"), "{}", one_line(&odd));
    }
}
