//! Loads the BPF programs and attaches them, hook by hook.

mod sizes;

use std::collections::BTreeSet;
use std::io;
use std::path::{Path, PathBuf};

use aya::programs::trace_point::TracePointError;
use aya::programs::{FEntry, FExit, Program, ProgramError, RawTracePoint};
use aya::{Btf, BtfError, Ebpf, EbpfLoader, Endianness, VerifierLogLevel};
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use ticktax_model::Nanos;
use ticktax_model::hook::Hook;
use ticktax_model::limitation::{HookMissing, Limitation};

use crate::error::{TraceError, no_file_can_be_opened, one_line, read_types};
use crate::groups::GroupWatch;
use crate::guests;
use crate::guests::timers::Kvm;
use crate::hooks::{Attach, HOOKS, HookPrograms};
use crate::object::{global, map};
use crate::profile::ProfileClock;
use crate::record::{MAX_CPUS, WAITING_SLOTS};
use crate::waited;

pub(crate) use self::sizes::Sizes;

/// The compiled BPF programs. `cargo xtask bpf` builds them from `bpf/`.
static OBJECT: &[u8] = aya::include_bytes_aligned!("../bpf/ticktax.bpf.o");
/// The BPF programs for kernels before Linux 5.12.
static BEFORE_5_12: &[u8] = aya::include_bytes_aligned!("../bpf/before_5_12.bpf.o");
/// A BPF program that is loaded only as a test: a kernel that accepts it also accepts [`OBJECT`].
static TAKES_ATOMICS: &[u8] = aya::include_bytes_aligned!("../bpf/takes_atomics.bpf.o");

/// Path of the running kernel's BTF.
pub(crate) const BTF: &str = "/sys/kernel/btf/vmlinux";

/// Form in which the tracer emits its results.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Output {
    /// Every span, passed through a ring buffer.
    Spans {
        /// Number of spans that fit into a CPU's buffer, rounded up to a power of two from 2^10 to
        /// 2^22.
        per_cpu: u32,
    },
    /// Sums and histograms that are kept in the kernel. Spans of at least
    /// [`LONG_NS`](crate::record::LONG_NS) are also passed through a ring buffer.
    Sums {
        /// Number of sources that the table can hold, rounded up to a power of two. A source counts
        /// once for each CPU.
        entries: u32,
    },
    /// Output for the flight recorder: sums of everything, and a ring that contains every span and
    /// edge until it is overwritten.
    Flight {
        /// Number of records that fit into a CPU's ring, rounded up to a power of two from 2^10 to
        /// 2^22.
        per_cpu: u32,
        /// Number of sources that each of the two tables of sums can hold, rounded up to a power of
        /// two. A source counts once for each CPU.
        entries: u32,
    },
}

/// BPF programs to load.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Programs {
    /// The newest ones that this kernel accepts.
    #[default]
    Fitting,
    /// The programs for kernels before Linux 5.12. Newer kernels accept them too.
    Before5_12,
}

/// Settings for loading the tracer.
#[derive(Clone, Debug)]
pub struct TraceSettings {
    /// Kind of output.
    pub output: Output,
    /// Path of the kernel's BTF.
    pub btf: PathBuf,
    /// Hooks that are not attached.
    pub without: BTreeSet<Hook>,
    /// Interval at which sums are emitted. Used only with [`Output::Sums`].
    pub window: Nanos,
    /// Whether threads will be followed ([`Tracer::follow`](crate::Tracer::follow)). Has no effect
    /// with [`Output::Sums`], because sums do not record when a thread was off CPU.
    pub following: bool,
    /// Clock of the profile to record. Has no effect unless the output is [`Output::Spans`].
    pub profile: Option<ProfileClock>,
    /// BPF programs to load.
    pub programs: Programs,
    /// Whether CPUs see each other's stores in program order. If they do not, or if this is
    /// unknown, each record gets a mark that shows whether the record is complete.
    pub stores_in_order: bool,
    /// Number of the cgroup hierarchy to watch: 0 for cgroup v2, otherwise the first number in its
    /// line of `/proc/self/cgroup`. `None` if groups are not watched.
    pub group_hierarchy: Option<u32>,
    /// Whether to watch virtual machines. Has no effect with [`Output::Flight`].
    pub guests: bool,
}

impl Default for TraceSettings {
    fn default() -> Self {
        Self {
            output: Output::Spans { per_cpu: 1 << 16 },
            btf: PathBuf::from(BTF),
            without: BTreeSet::new(),
            window: Nanos::from_secs(1),
            following: false,
            profile: None,
            programs: Programs::default(),
            stores_in_order: cfg!(target_arch = "x86_64"),
            group_hierarchy: None,
            guests: false,
        }
    }
}

/// The loaded BPF programs, and the hooks that are attached.
pub(crate) struct Loaded {
    pub(crate) programs: Ebpf,
    pub(crate) is_before_5_12: bool,
    pub(crate) attached: Vec<Hook>,
    pub(crate) limitations: Vec<Limitation>,
    pub(crate) every_entry_watched: bool,
    /// Watch on cgroups, or why it failed. `None` if it was not requested.
    pub(crate) groups: Option<Result<GroupWatch, TraceError>>,
}

/// Loads the BPF programs, and attaches all hooks that are wanted and that this kernel supports.
pub(crate) fn load(settings: &TraceSettings, sizes: Sizes) -> Result<Loaded, TraceError> {
    if sizes.cpus > MAX_CPUS {
        return Err(TraceError::TooManyCpus {
            cpus: sizes.cpus,
            room: MAX_CPUS,
        });
    }
    let btf = read_btf(&settings.btf)?;
    let count = |entries: usize| u32::try_from(entries).unwrap_or(u32::MAX);
    let kvm = Kvm::read(settings.guests);
    let mut loader = EbpfLoader::new();
    if !sizes.following {
        loader.map_max_entries(map::THREADS, 1);
    }
    if sizes.flight {
        loader.map_max_entries(map::WAITING, count(WAITING_SLOTS));
    } else {
        // A ring buffer takes at least one page.
        loader.map_max_entries(map::TRIGGERS, 1 << 12);
    }
    waited::prepare(&mut loader, sizes);
    kvm.prepare(&mut loader, sizes);
    let in_order = u32::from(settings.stores_in_order);
    let _limit = LockedMemory::as_now();
    let is_old = settings.programs == Programs::Before5_12 || !takes_atomics(&btf);
    let object = if is_old { BEFORE_5_12 } else { OBJECT };
    let mut programs = loader
        .btf(Some(&btf))
        .verifier_log_level(VerifierLogLevel::DISABLE)
        .override_global(global::RING_ORDER, &sizes.ring_order, true)
        .override_global(global::RING_MASK, &sizes.ring_mask(), true)
        .override_global(global::SUM_MASK, &(sizes.sum_entries - 1), true)
        .override_global(global::SUMMING, &u32::from(sizes.summing), true)
        .override_global(global::FLIGHT, &u32::from(sizes.flight), true)
        .override_global(global::STORES_IN_ORDER, &in_order, true)
        .map_max_entries(map::SPANS, count(sizes.span_entries()))
        .map_max_entries(map::STACKS, sizes.stack_entries())
        .map_max_entries(map::MORE_STACKS, sizes.stack_entries())
        .map_max_entries(map::RING_ENTRIES, count(sizes.ring_entries()))
        .map_max_entries(map::THREAD_NAMES, count(sizes.name_entries()))
        .map_max_entries(map::STACK_NOTES, count(sizes.note_entries()))
        .map_max_entries(map::RULE_LENGTHS, count(sizes.rule_entries()))
        .map_max_entries(map::SUMS, sizes.all_sum_entries())
        .map_max_entries(map::RESTS, sizes.rest_entries())
        .load(object)
        .map_err(|error| TraceError::from_loading(&error, sizes.bytes()))?;

    let mut outcome = Outcome {
        attached: Vec::new(),
        limitations: Vec::new(),
        every_entry_watched: true,
    };
    let wanted = |hook: &&HookPrograms| sizes.needs(hook.need);
    let is_here = |hook: &&HookPrograms| hook.is_on(std::env::consts::ARCH);
    for hook in HOOKS.iter().filter(is_here).filter(wanted) {
        if settings.without.contains(&hook.hook) {
            outcome.note(hook, HookMissing::Excluded);
            continue;
        }
        match attach(&mut programs, hook, &btf, settings.profile.as_ref()) {
            Ok(()) => outcome.attached.push(hook.hook),
            Err(failed) if failed.is_out_of_files => return Err(TraceError::too_many_files()),
            Err(failed) if hook.hook == Hook::SchedSwitch => {
                return Err(no_switches(&failed, sizes));
            }
            Err(failed) => outcome.note(hook, failed.reason()),
        }
    }
    let Outcome {
        attached,
        limitations,
        every_entry_watched,
    } = outcome;
    Ok(Loaded {
        programs,
        is_before_5_12: is_old,
        attached,
        limitations,
        every_entry_watched,
        groups: (settings.group_hierarchy).map(|number| GroupWatch::load(&btf, number)),
    })
}

/// Hooks attached so far, and the limitations that result from the missing ones.
struct Outcome {
    attached: Vec<Hook>,
    limitations: Vec<Limitation>,
    every_entry_watched: bool,
}

impl Outcome {
    fn note(&mut self, hook: &HookPrograms, reason: HookMissing) {
        self.every_entry_watched &= !hook.entry;
        self.limitations.push(Limitation::HookMissing {
            hook: hook.hook,
            reason,
        });
    }
}

/// Reason why a BPF program could not be attached.
struct AttachError {
    error: ProgramError,
    place: Attach,
    /// Whether this process had reached its limit on open files.
    is_out_of_files: bool,
}

/// Attaches all programs of `hook`. If one of them fails, detaches those that were attached.
fn attach(
    programs: &mut Ebpf,
    hook: &HookPrograms,
    btf: &Btf,
    clock: Option<&ProfileClock>,
) -> Result<(), AttachError> {
    for &(name, place) in hook.programs {
        let attached = match programs.program_mut(name) {
            Some(program) => match clock.filter(|_| place == Attach::Clock) {
                Some(clock) => clock.attach(program),
                None => attach_one(program, name, place, btf),
            },
            None => Err(ProgramError::NotLoaded),
        };
        if let Err(error) = attached {
            // Check this before detaching programs, because detaching closes files.
            let is_out_of_files = no_file_can_be_opened();
            // If only the entry program stayed attached, its frames would never be removed from the
            // stack.
            withdraw(programs, hook);
            return Err(AttachError {
                error,
                place,
                is_out_of_files,
            });
        }
    }
    Ok(())
}

/// Unloads those programs of `hook` that were attached.
pub(crate) fn withdraw(programs: &mut Ebpf, hook: &HookPrograms) {
    for &(name, place) in hook.programs {
        if matches!(place, Attach::Shared(_)) {
            // Other hooks need this program. Without an entry program, it does nothing for this
            // hook.
            continue;
        }
        let unloaded = match programs.program_mut(name) {
            Some(Program::BtfTracePoint(program)) => program.unload(),
            Some(Program::RawTracePoint(program)) => program.unload(),
            Some(Program::FEntry(program)) => program.unload(),
            Some(Program::FExit(program)) => program.unload(),
            Some(Program::PerfEvent(program)) => program.unload(),
            Some(Program::TracePoint(program)) => program.unload(),
            _ => Ok(()),
        };
        // The programs after the one that failed were never loaded, so ignore their errors.
        drop(unloaded);
    }
}

fn attach_one(
    program: &mut Program,
    name: &str,
    place: Attach,
    btf: &Btf,
) -> Result<(), ProgramError> {
    match place {
        Attach::Tracepoint => {
            let program: &mut aya::programs::BtfTracePoint = program.try_into()?;
            program.load(name, btf)?;
            program.attach()?;
        }
        Attach::RawTracepoint => {
            let program: &mut aya::programs::RawTracePoint = program.try_into()?;
            program.load()?;
            program.attach(name)?;
        }
        Attach::Shared(tracepoint) => {
            let program: &mut aya::programs::RawTracePoint = program.try_into()?;
            if program.fd().is_err() {
                program.load()?;
            }
            program.attach(tracepoint)?;
        }
        Attach::FunctionEntry(function) => {
            let program: &mut FEntry = program.try_into()?;
            program.load(function, btf)?;
            program.attach()?;
        }
        Attach::FunctionExit(function) => {
            let program: &mut FExit = program.try_into()?;
            program.load(function, btf)?;
            program.attach()?;
        }
        Attach::Kvm => guests::attach(program, name)?,
        // Attached by the profile's clock.
        Attach::Clock => return Err(ProgramError::NotLoaded),
    }
    Ok(())
}

impl AttachError {
    /// Returns the reason to report for the hook. A hook is reported as missing only if the
    /// kernel's BTF does not contain it, or if the kernel returned ENOENT.
    fn reason(&self) -> HookMissing {
        use Attach::{FunctionEntry, FunctionExit};
        let error = &self.error;
        let unknown = matches!(
            error,
            ProgramError::Btf(BtfError::UnknownBtfTypeName { .. })
        );
        match self.place {
            FunctionEntry(function) | FunctionExit(function) if unknown => {
                HookMissing::NoFunction(function.to_owned())
            }
            _ if unknown => HookMissing::NoTracepoint,
            // The kernel looks up a raw tracepoint only when the program is attached.
            Attach::RawTracepoint | Attach::Shared(_) if is_not_found(error) => {
                HookMissing::NoTracepoint
            }
            Attach::Kvm if has_no_file(error) => HookMissing::NoTracepoint,
            FunctionEntry(function) | FunctionExit(function) if is_denied(error) => {
                HookMissing::FunctionNotPermitted(function.to_owned())
            }
            _ => HookMissing::Refused(one_line(error)),
        }
    }
}

fn is_not_found(error: &ProgramError) -> bool {
    let ProgramError::SyscallError(error) = error else {
        return false;
    };
    error.io_error.kind() == io::ErrorKind::NotFound
}

/// Returns whether tracefs has no directory for a tracepoint.
fn has_no_file(error: &ProgramError) -> bool {
    let error = match error {
        ProgramError::IOError(error) => error,
        ProgramError::TracePointError(TracePointError::FileError { io_error, .. }) => io_error,
        _ => return false,
    };
    error.kind() == io::ErrorKind::NotFound
}

fn is_denied(error: &ProgramError) -> bool {
    let ProgramError::LoadError { io_error, .. } = error else {
        return false;
    };
    io_error.kind() == io::ErrorKind::PermissionDenied
}

/// Returns the error for a kernel on which `sched_switch` cannot be watched. Creating maps requires
/// fewer rights than loading programs, so missing rights may only become apparent here.
fn no_switches(failed: &AttachError, sizes: Sizes) -> TraceError {
    match TraceError::from_loading(&failed.error, sizes.bytes()) {
        TraceError::Refused { .. } => TraceError::NoSwitches {
            why: failed.reason(),
        },
        other => other,
    }
}

/// Returns whether the kernel accepts BPF programs that use atomic instructions.
fn takes_atomics(types: &Btf) -> bool {
    let try_load = || {
        let mut programs = EbpfLoader::new()
            .btf(Some(types))
            .verifier_log_level(VerifierLogLevel::DISABLE)
            .load(TAKES_ATOMICS)
            .ok()?;
        let program: &mut RawTracePoint = programs.program_mut("takes_atomics")?.try_into().ok()?;
        program.load().ok()
    };
    try_load().is_some()
}

/// Restores the process's limit on locked memory on drop. Before Linux 5.11, maps and programs
/// count as locked memory, so aya raises the limit. Commands that are started later must not
/// inherit the raised limit.
struct LockedMemory(Option<(u64, u64)>);

impl LockedMemory {
    fn as_now() -> Self {
        Self(getrlimit(Resource::RLIMIT_MEMLOCK).ok())
    }
}

impl Drop for LockedMemory {
    fn drop(&mut self) {
        if let Some((soft, hard)) = self.0 {
            // Lowering the limit is always allowed.
            let _ = setrlimit(Resource::RLIMIT_MEMLOCK, soft, hard);
        }
    }
}

/// Reads the kernel's types.
pub(crate) fn read_btf(path: &Path) -> Result<Btf, TraceError> {
    parse_btf(&read_types(path)?, path)
}

/// Parses the kernel's types, which were read from `path`.
pub(crate) fn parse_btf(bytes: &[u8], path: &Path) -> Result<Btf, TraceError> {
    Btf::parse(bytes, Endianness::default()).map_err(|error| TraceError::BadBtf {
        path: path.to_owned(),
        why: one_line(&error),
    })
}
