//! Files for programs that draw profiles: folded stacks, and pprof.

mod functions;
mod pprof;

use std::collections::BTreeMap;
use std::fmt::Write;

use ticktax_model::Nanos;
use ticktax_model::profile::{Profile, ProfiledAccount};
use ticktax_model::recording::{Stack, StackFrame};
use ticktax_model::statement::Class;

pub(crate) use self::functions::{Function, functions};
pub use self::pprof::pprof;

/// Returns the profile as folded stacks, the input of `flamegraph.pl` and many viewers: a line for
/// each stack, with its functions separated by semicolons, outermost first, and its time in ns.
///
/// The outermost names are those of the account. Processes with the same name share their stacks.
pub fn folded(profile: &Profile) -> String {
    let mut lines = String::new();
    for (stack, value) in stacks(profile) {
        // Writing to a string does not fail.
        let _ = writeln!(lines, "{stack} {}", value.time.0);
    }
    lines
}

/// Value of a stack.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Value {
    pub(crate) samples: u64,
    pub(crate) time: Nanos,
}

/// Returns all stacks in folded form, with the names of their accounts, in alphabetical order.
pub(crate) fn stacks(profile: &Profile) -> BTreeMap<String, Value> {
    let mut all: BTreeMap<String, Value> = BTreeMap::new();
    for account in &profile.accounts {
        let outer = outermost(account).to_string();
        for part in &account.stacks {
            let stack = match &*part.stack {
                "" => outer.clone(),
                inner => format!("{outer};{inner}"),
            };
            let value = all.entry(stack).or_default();
            value.samples += part.samples;
            value.time += part.time;
        }
    }
    all.retain(|_, value| *value != Value::default());
    all
}

/// Returns the names of the account: that of its class and its own, if they differ.
fn outermost(account: &ProfiledAccount) -> Stack {
    let name = &*account.name;
    match class_name(account.class) {
        Some(class) => Stack::from_user([class, name]),
        None => Stack::from_user([name]),
    }
}

/// Returns the name for all accounts of a class, or `None` if the class has only one.
fn class_name(class: Class) -> Option<&'static str> {
    match class {
        Class::Program => Some("programs"),
        Class::KernelThread => Some("kernel threads"),
        Class::Irq => Some("interrupts"),
        Class::Softirq => Some("softirqs"),
        Class::Nmi => Some("non-maskable interrupts"),
        Class::EntryExit
        | Class::HypervisorOrFirmware
        | Class::Steal
        | Class::Unexplained
        | Class::Tool
        | Class::Probe
        | Class::Idle => None,
    }
}

/// Returns the frames of a stack in folded form.
pub(crate) fn frames(stack: &str) -> Vec<StackFrame> {
    Stack::from_folded(stack).frames().to_vec()
}

#[cfg(test)]
pub(crate) mod tests;
