//! Records the activity of a live kernel.
//!
//! [`Tracer`] loads the BPF programs in `bpf/` and turns the records that they emit into the
//! model's rows. Within a CPU's accounting interval
//! ([`CpuInterval`](ticktax_model::recording::CpuInterval)), the self times of the CPU's spans add
//! up exactly to the elapsed time.
//!
//! A *stretch* is the time between two switches on a CPU: a thread's time on the CPU, or an idle
//! period. It lies at the bottom of the CPU's stack of open spans. Interrupts are pushed on top of
//! it.

mod backlog;
mod calls;
mod close;
mod code_files;
mod code_names;
mod decode;
mod drops;
mod error;
mod flight;
mod follow;
mod groups;
mod guests;
mod hooks;
mod load;
mod mounts;
mod names;
mod nudge;
mod object;
mod places;
mod pressure;
mod priority;
mod profile;
#[doc(hidden)]
pub mod record;
mod recycle;
mod sampled;
mod seal;
mod standalone;
mod sys;
mod tracer;
mod user_code;
mod wait_objects;
mod waited;
mod writes;

pub use backlog::Backlog;
pub use close::Closing;
pub use code_files::{CodeFiles, NamedCode};
pub use decode::{Decoder, Identity};
pub use drops::DropWatch;
pub use error::TraceError;
pub use flight::{Capture, Delay, Frozen, FrozenRows, Noticed, PacedThread, Rule, Triggers, Whose};
pub use groups::{GroupChange, GroupEvent};
pub use hooks::{Attach, HOOKS, HookPrograms, Need};
pub use load::{Output, Programs, TraceSettings};
pub use names::{KernelFunctions, Names};
pub use pressure::PressureWatch;
pub use priority::{ThreadPriority, deadline_budget};
pub use profile::ProfileClock;
pub use record::{SpanRecord, SumRecord, kind};
pub use recycle::Counted;
pub use tracer::{PROBE_PREFIX, Tracer};
pub use writes::{LostWrites, WriteWatch};
