//! All errors that end the command, with their exit codes.

use std::io;
use std::process::ExitCode;

use ticktax_import::ImportError;
use ticktax_knobs::KnobError;
use ticktax_lab::LabError;
use ticktax_mem::MemError;
use ticktax_model::group::GroupError;
use ticktax_observe::ObserveError;
use ticktax_predict::sweep::SweepError;
use ticktax_probes::ProbeError;
use ticktax_storage::StorageError;
use ticktax_store::incidents::IncidentStoreError;
use ticktax_store::recording::RecordingError;
use ticktax_store::text::TextError;
use ticktax_traffic::NetError;
use ticktax_trial::changes::CompareError;
use ticktax_trial::numbers::NumbersError;
use ticktax_trial::run::TryError;

use crate::files::RowFileError;

/// Exit code if a statement's accounts do not balance.
pub(crate) const UNBALANCED: u8 = 3;

/// Exit code if some arms of a sweep failed.
pub(crate) const FAILED_POINTS: u8 = 4;

/// Exit code if the model does not reproduce the measurement.
pub(crate) const FAILED_CONTROL: u8 = 5;

/// Exit code if a `--fail-if` condition is met.
pub(crate) const FAILED_CONDITION: u8 = 6;

/// Exit code for invalid arguments. clap uses the same code.
const INVALID_ARGUMENTS: u8 = 2;

/// Exit code after Ctrl-C, the same as in a shell.
const INTERRUPTED: u8 = 130;

/// Exit code if the command to audit exists but cannot be executed, the same as in a shell.
const NOT_EXECUTABLE: u8 = 126;

/// Exit code if the command to audit does not exist, the same as in a shell.
const NOT_FOUND: u8 = 127;

/// An error that ends ticktax. Its text is a single line.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Failure {
    #[error(transparent)]
    Recording(#[from] RecordingError),
    #[error(transparent)]
    Import(#[from] ImportError),
    #[error(transparent)]
    Rows(#[from] RowFileError),
    #[error(transparent)]
    Probe(#[from] ProbeError),
    #[error(transparent)]
    Net(#[from] NetError),
    #[error(transparent)]
    Observe(#[from] ObserveError),
    #[error(transparent)]
    Group(#[from] GroupError),
    #[error(
        "process{pid} exited before it could be watched: start the audit first, or audit a command \
         with `ticktax audit -- COMMAND`"
    )]
    NotWatched { pid: String },
    #[error("cannot write output {0}")]
    Output(String),
    #[error("cannot install a signal handler: {0}")]
    Signals(String),
    #[error(
        "cannot run in {} MiB of address space: ticktax needs {} MiB; raise `ulimit -v`",
        limit >> 20,
        needed.div_ceil(1 << 20)
    )]
    AddressSpace { limit: u64, needed: u64 },
    #[error(
        "cannot run with a stack of {} KiB: ticktax needs {} KiB; raise `ulimit -s`",
        limit >> 10,
        needed >> 10
    )]
    Stack { limit: u64, needed: u64 },
    #[error("{0}")]
    Arguments(String),
    #[error("{0}")]
    Case(String),
    #[error(transparent)]
    Scenario(#[from] TextError),
    #[error(transparent)]
    Sweep(#[from] SweepError),
    #[error("{0}")]
    Agent(String),
    #[error("{0}")]
    Prediction(String),
    #[error(transparent)]
    Compare(#[from] CompareError),
    #[error(transparent)]
    Numbers(#[from] NumbersError),
    #[error("{0}")]
    Incidents(String),
    #[error(transparent)]
    IncidentStore(#[from] IncidentStoreError),
    #[error(transparent)]
    Knob(#[from] KnobError),
    #[error(transparent)]
    Trial(#[from] TryError),
    #[error(transparent)]
    Lab(#[from] LabError),
    #[error(transparent)]
    Mem(#[from] MemError),
    #[error("{0}")]
    Walk(String),
    #[error(transparent)]
    Storage(#[from] StorageError),
    #[error("cannot read the list of mounts in /proc/self/mountinfo; mount /proc")]
    Mounts,
    #[error("cannot read the state of the system clock (adjtimex): {0}")]
    Clock(&'static str),
}

/// Suppresses panic messages while damaged files are decoded. Such panics are caught and become
/// one-line errors.
pub(crate) fn hide_caught_panics() {
    let print = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        if !ticktax_store::parquet_file::is_decoding() {
            print(panic);
        }
    }));
}

impl Failure {
    pub(crate) fn exit_code(&self) -> ExitCode {
        match self {
            Self::Observe(error) | Self::Trial(TryError::Observe(error)) => observation_code(error),
            Self::Knob(error) | Self::Trial(TryError::Knob(error)) => knob_code(error),
            Self::Arguments(_)
            | Self::Numbers(NumbersError::Choice { .. } | NumbersError::Mixed { .. })
            | Self::Lab(LabError::Senseless(_))
            | Self::Net(
                NetError::Size { .. }
                | NetError::Mtu { .. }
                | NetError::LinkRange { .. }
                | NetError::Address { .. }
                | NetError::Sysctl(_)
                | NetError::Option { .. }
                | NetError::Offload { .. },
            )
            | Self::Trial(TryError::Senseless(_)) => ExitCode::from(INVALID_ARGUMENTS),
            Self::Lab(LabError::Interrupted) | Self::Net(NetError::Interrupted) => {
                ExitCode::from(INTERRUPTED)
            }
            _ => ExitCode::FAILURE,
        }
    }
}

fn observation_code(error: &ObserveError) -> ExitCode {
    match error {
        // These are the exit codes that a shell uses.
        ObserveError::Command { kind, .. } => ExitCode::from(match kind {
            io::ErrorKind::NotFound => NOT_FOUND,
            _ => NOT_EXECUTABLE,
        }),
        ObserveError::NoCpu { .. }
        | ObserveError::Offline { .. }
        | ObserveError::NoFrame { .. }
        | ObserveError::Arms { .. }
        | ObserveError::Probe(ProbeError::Work { .. }) => ExitCode::from(INVALID_ARGUMENTS),
        _ => ExitCode::FAILURE,
    }
}

fn knob_code(error: &KnobError) -> ExitCode {
    match error {
        KnobError::Unknown { .. }
        | KnobError::Value { .. }
        | KnobError::Scope { .. }
        | KnobError::Dangerous { .. }
        | KnobError::ReadOnly { .. } => ExitCode::from(INVALID_ARGUMENTS),
        _ => ExitCode::FAILURE,
    }
}
