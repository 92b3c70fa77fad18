//! The functions of a profile in which the CPUs spent most time.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use ticktax_model::profile::{Profile, ProfiledAccount};
use ticktax_model::recording::StackFrame;

use super::{Value, frames};

/// A function, and the time spent in it but not in the functions that it called.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Function {
    /// Function or, for code in user mode without symbols, file.
    pub(crate) name: String,
    pub(crate) is_kernel: bool,
    /// Name of the account. The same function is listed once for each.
    pub(crate) account: String,
    pub(crate) value: Value,
}

/// Returns all functions, longest time first. Accounts that have no stacks count as functions.
pub(crate) fn functions(profile: &Profile) -> Vec<Function> {
    let mut all: BTreeMap<(String, bool, String), Value> = BTreeMap::new();
    for account in &profile.accounts {
        for part in &account.stacks {
            let (name, is_kernel) = innermost(account, &frames(&part.stack));
            let key = (name, is_kernel, account.name.clone());
            let value = all.entry(key).or_default();
            value.samples += part.samples;
            value.time += part.time;
        }
    }
    let functions = all
        .into_iter()
        .map(|((name, is_kernel, account), value)| Function {
            name,
            is_kernel,
            account,
            value,
        });
    let mut functions: Vec<Function> = functions.collect();
    functions.sort_by_key(|function| Reverse(function.value.time));
    functions
}

/// Returns the name of the innermost function, and whether it belongs to the kernel. Addresses
/// in a file are counted under the name of the file.
fn innermost(account: &ProfiledAccount, frames: &[StackFrame]) -> (String, bool) {
    match frames {
        [] => (account.name.clone(), false),
        [.., file, place] if is_address_in(place, file) => (file.name.clone(), false),
        [.., last] => (last.name.clone(), last.is_kernel),
    }
}

fn is_address_in(place: &StackFrame, file: &StackFrame) -> bool {
    let rest = place.name.strip_prefix(&file.name);
    !place.is_kernel && rest.is_some_and(|rest| rest.starts_with("+0x"))
}
