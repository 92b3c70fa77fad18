//! The live kernel as a recording.
//!
//! [`Tracer`] loads the BPF programs of `bpf/` and turns what they hand out into the model's rows.

mod close;
mod decode;
mod drops;
mod error;
mod flight;
mod follow;
mod hooks;
mod load;
mod names;
mod nudge;
mod object;
#[doc(hidden)]
pub mod record;
mod recycle;
mod seal;
mod sys;
mod tracer;

pub use close::Closing;
pub use decode::{Decoder, Identity};
pub use drops::DropWatch;
pub use error::TraceError;
pub use flight::{Capture, Delay, Frozen, FrozenRows, Noticed, PacedThread, Rule, Triggers, Whose};
pub use hooks::{Attach, HOOKS, HookPrograms, Need};
pub use load::{Output, Programs, TraceSettings};
pub use names::{KernelFunctions, Names};
pub use record::{SpanRecord, SumRecord, kind};
pub use recycle::Counted;
pub use tracer::{PROBE_PREFIX, Tracer};
