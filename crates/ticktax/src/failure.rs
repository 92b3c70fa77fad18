//! Why the command could not do what was asked, and how it then ends.

use std::io;
use std::process::ExitCode;

use ticktax_experiment::changes::CompareError;
use ticktax_experiment::numbers::NumbersError;
use ticktax_experiment::sweep::SweepError;
use ticktax_experiment::trial::run::TryError;
use ticktax_knobs::KnobError;
use ticktax_lab::LabError;
use ticktax_observe::ObserveError;
use ticktax_probes::ProbeError;
use ticktax_probes::net::NetError;
use ticktax_store::incidents::IncidentStoreError;
use ticktax_store::recording::RecordingError;

use crate::files::RowFileError;

/// The books of a statement do not balance.
pub(crate) const UNBALANCED: u8 = 3;

/// Some points of a sweep could not be run.
pub(crate) const FAILED_POINTS: u8 = 4;

/// A model does not give what was measured.
pub(crate) const FAILED_CONTROL: u8 = 5;

/// What `--fail-if` forbids is so.
pub(crate) const FAILED_CONDITION: u8 = 6;

/// The arguments make no sense, as the parser of arguments ends for its part.
const SENSELESS: u8 = 2;

/// Ctrl-C ended it, as a shell would say it.
const INTERRUPTED: u8 = 130;

/// The command to audit is there, and may not be run.
const MAY_NOT_RUN: u8 = 126;

/// There is no such command.
const NOT_FOUND: u8 = 127;

/// Everything that ends the command early. Each is one line for a person.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Failure {
    /// A recording could not be read or written.
    #[error(transparent)]
    Recording(#[from] RecordingError),
    /// A file of rows could not be written.
    #[error(transparent)]
    Rows(#[from] RowFileError),
    /// A probe could not be started.
    #[error(transparent)]
    Probe(#[from] ProbeError),
    /// There is no traffic, or not to its end.
    #[error(transparent)]
    Net(#[from] NetError),
    /// Nothing could be observed.
    #[error(transparent)]
    Observe(#[from] ObserveError),
    /// What was printed could not be written.
    #[error("cannot write the statement {0}")]
    Output(String),
    /// A signal cannot be caught.
    #[error("cannot listen for signals: {0}")]
    Signals(String),
    /// `ulimit -v` leaves too little room.
    #[error(
        "{} MiB of address space are too little, ticktax needs {} MiB; raise `ulimit -v`",
        limit >> 20,
        needed.div_ceil(1 << 20)
    )]
    AddressSpace {
        /// Bytes that this process may map.
        limit: u64,
        /// Bytes that the verb needs.
        needed: u64,
    },
    /// `ulimit -s` leaves too little stack.
    #[error(
        "a stack of {} KiB is too small, ticktax needs {} KiB; raise `ulimit -s`",
        limit >> 10,
        needed >> 10
    )]
    Stack {
        /// Bytes that the main thread's stack may take.
        limit: u64,
        /// Bytes that ticktax needs.
        needed: u64,
    },
    /// The arguments make no sense together.
    #[error("{0}")]
    Arguments(String),
    /// No such case, or its file is none.
    #[error("{0}")]
    Case(String),
    /// A scenario cannot be read.
    #[error("{0}")]
    Scenario(String),
    /// A sweep cannot begin or go on.
    #[error(transparent)]
    Sweep(#[from] SweepError),
    /// An agent cannot begin or go on.
    #[error("{0}")]
    Agent(String),
    /// Nothing can be predicted.
    #[error("{0}")]
    Prediction(String),
    /// Nothing can be compared.
    #[error(transparent)]
    Compare(#[from] CompareError),
    /// Lists of numbers cannot be compared.
    #[error(transparent)]
    Numbers(#[from] NumbersError),
    /// Incidents cannot be kept, found or asked for.
    #[error("{0}")]
    Incidents(String),
    /// A folder of incidents cannot be used.
    #[error(transparent)]
    IncidentStore(#[from] IncidentStoreError),
    /// A setting cannot be read or put back.
    #[error(transparent)]
    Knob(#[from] KnobError),
    /// Nothing can be tried, or not to the end.
    #[error(transparent)]
    Trial(#[from] TryError),
    /// The lab cannot do it.
    #[error(transparent)]
    Lab(#[from] LabError),
}

/// Leaves out the message of a panic that damaged bytes cause: it becomes an error of one line.
pub(crate) fn hide_caught_panics() {
    let print = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        if !ticktax_store::parquet_file::is_decoding() {
            print(panic);
        }
    }));
}

impl Failure {
    /// How the process ends.
    pub(crate) fn exit_code(&self) -> ExitCode {
        match self {
            Self::Observe(error) | Self::Trial(TryError::Observe(error)) => of_observation(error),
            Self::Knob(error) | Self::Trial(TryError::Knob(error)) => of_knob(error),
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
            | Self::Trial(TryError::Senseless(_)) => ExitCode::from(SENSELESS),
            Self::Lab(LabError::Interrupted) | Self::Net(NetError::Interrupted) => {
                ExitCode::from(INTERRUPTED)
            }
            _ => ExitCode::FAILURE,
        }
    }
}

fn of_observation(error: &ObserveError) -> ExitCode {
    match error {
        // As a shell says it.
        ObserveError::Command { kind, .. } => ExitCode::from(match kind {
            io::ErrorKind::NotFound => NOT_FOUND,
            _ => MAY_NOT_RUN,
        }),
        ObserveError::NoCpu { .. }
        | ObserveError::Offline { .. }
        | ObserveError::NoFrame { .. }
        | ObserveError::Variants { .. }
        | ObserveError::Probe(ProbeError::Work { .. }) => ExitCode::from(SENSELESS),
        _ => ExitCode::FAILURE,
    }
}

fn of_knob(error: &KnobError) -> ExitCode {
    match error {
        KnobError::Unknown { .. }
        | KnobError::Value { .. }
        | KnobError::Scope { .. }
        | KnobError::Dangerous { .. }
        | KnobError::ReadOnly { .. } => ExitCode::from(SENSELESS),
        _ => ExitCode::FAILURE,
    }
}
