//! Determines where a thread waits from its kernel stack.
//!
//! The innermost functions on a stack belong to the scheduler, and are the same for every wait. The
//! first function below them shows best what the thread waits for, for example `pipe_read`. If that
//! function belongs to a lock or another general way to wait, its caller is needed as well. The
//! outermost functions show how the thread entered the kernel.

use std::collections::HashMap;
use std::sync::Arc;

use aya::maps::{MapData, StackTraceMap};
use ticktax_model::recording::Stack;
use ticktax_model::victim::PAGE_FAULT_ENTRY;

use crate::load::Sizes;
use crate::record::{MORE_STACKS, PROFILE_STACKS, STACKS};
use crate::sampled;

/// Prefixes of scheduler functions, in which every thread waits.
const SCHEDULER: [&str; 9] = [
    "__cond_resched",
    "__schedule",
    "freezable_schedule",
    "io_schedule",
    "msleep",
    "preempt_schedule",
    "rt_mutex_schedule",
    "schedule",
    "usleep_range",
];

/// Function that switches to the next thread. Functions above it belong to the tracer.
const SWITCH: &str = "__schedule";

/// Prefixes of the functions in which a thread waits for a kernel lock. The tracepoint
/// `contention_begin` fires before each wait in one of them, except for waits for PI futexes, which
/// use functions of real-time mutexes.
const LOCKS: [&str; 16] = [
    "__down",
    "__mutex_lock",
    "__percpu_down",
    "__rt_mutex",
    "__rwsem",
    "__ww_mutex",
    "down_",
    "mutex_lock",
    "percpu_down",
    "percpu_rwsem_wait",
    "rt_mutex_",
    "rt_spin_lock",
    "rtlock_",
    "rwbase_",
    "rwsem_",
    "ww_mutex_",
];

/// Prefixes of other functions that wait on behalf of any caller: completions, bits of pages and
/// buffers.
const GENERAL: [&str; 14] = [
    "__folio_lock",
    "__lock_buffer",
    "__lock_page",
    "__wait_for_common",
    "__wait_on_b",
    "__wait_rcu_gp",
    "bit_wait",
    "do_wait_for_common",
    "folio_lock",
    "folio_wait_",
    "lock_page",
    "out_of_line_wait_on_bit",
    "wait_for_co",
    "wait_on_",
];

/// Prefixes of the functions that implement a system call. The rest of their name is the name of
/// the call.
const CALLS: [&str; 11] = [
    "__x64_sys_",
    "__arm64_sys_",
    "__ia32_sys_",
    "__ia32_compat_sys_",
    "__arm64_compat_sys_",
    "__se_compat_sys_",
    "__do_compat_sys_",
    "__se_sys_",
    "__do_sys_",
    "__sys_",
    "ksys_",
];

/// Functions that one or two system calls call as their last step, and the more common of these
/// system calls. The compiler turns such a call into a jump, so the system call's own function is
/// not on the stack.
const LAST_CALLED: [(&str, &str); 7] = [
    ("core_sys_select", "select"),
    ("do_epoll_wait", "epoll_wait"),
    ("do_futex", "futex"),
    ("do_sys_poll", "poll"),
    ("kernel_wait4", "wait4"),
    ("kernel_waitid", "waitid"),
    ("vm_mmap_pgoff", "mmap"),
];

/// Functions of a page fault, on x86 and arm64.
const FAULTS: [&str; 6] = [
    "asm_exc_page_fault",
    "do_mem_abort",
    "do_page_fault",
    "do_user_addr_fault",
    "exc_page_fault",
    "handle_mm_fault",
];

/// Functions in which a freezer makes a thread wait: first the one for cgroup v1 and system-wide
/// freezing, then the one for cgroup v2.
const FREEZERS: [&str; 2] = ["__refrigerator", "do_freezer_trap"];

/// Function that wakes a thread. Functions above it belong to the tracer.
const WAKE: &str = "try_to_wake_up";

/// Prefixes of functions that release a lock or wake threads on behalf of any caller.
const RELEASES: [&str; 27] = [
    "__folio_unlock",
    "__mutex_unlock",
    "__percpu_up",
    "__rt_mutex",
    "__rwsem",
    "__unlock_page",
    "__up",
    "__wake_up",
    "_raw_",
    "autoremove_wake",
    "complete_all",
    "complete_with_flags",
    "default_wake",
    "folio_unlock",
    "folio_wake",
    "mutex_unlock",
    "percpu_up",
    "rt_mutex_",
    "rt_spin_unlock",
    "rwbase_",
    "rwsem_",
    "swake_up",
    "unlock_",
    "up_",
    "wake_",
    "woken_wake",
    "ww_mutex_",
];

/// Functions that wake a given thread. Timers and signals call these directly.
const WAKE_THREAD: [&str; 2] = ["wake_up_process", "wake_up_state"];

/// Where a thread waits, as far as its stack shows. A part is empty if it is unknown.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Place {
    /// System call, or [`PAGE_FAULT_ENTRY`].
    pub(crate) call: String,
    /// Function that waits.
    pub(crate) function: String,
    /// If `function` is a general one, the function that called it.
    pub(crate) caller: String,
    /// Whether a freezer has stopped the thread. The other parts are then empty.
    pub(crate) is_frozen: bool,
}

fn has_prefix(function: &str, prefixes: &[&str]) -> bool {
    prefixes.iter().any(|prefix| function.starts_with(prefix))
}

fn is_lock(function: &str) -> bool {
    function == "down" || has_prefix(function, &LOCKS)
}

fn is_general(function: &str) -> bool {
    is_lock(function) || has_prefix(function, &GENERAL)
}

/// Returns the name of the system call that a function implements, if any.
pub(crate) fn call_of(function: &str) -> Option<&str> {
    let mut calls = CALLS.iter();
    calls.find_map(|prefix| function.strip_prefix(prefix))
}

impl Place {
    /// Returns whether the thread waits for a kernel lock.
    pub(crate) fn is_in_lock(&self) -> bool {
        is_lock(&self.function)
    }

    /// Determines the place from the functions on a stack, innermost first.
    pub(crate) fn from_stack(functions: &[&str]) -> Self {
        let switch = functions.iter().position(|&function| function == SWITCH);
        switch.map_or_else(Self::default, |switch| {
            Self::below_scheduler(&functions[switch..])
        })
    }

    /// Does the same for a stack that starts in or below the scheduler.
    pub(crate) fn below_scheduler(functions: &[&str]) -> Self {
        if functions.iter().any(|name| FREEZERS.contains(name)) {
            return Self {
                is_frozen: true,
                ..Self::default()
            };
        }
        let entry = || functions.iter().any(|name| FAULTS.contains(name));
        let call = functions.iter().rev().find_map(|name| call_of(name));
        let last_called = || {
            let mut pairs = LAST_CALLED.iter();
            pairs.find_map(|(name, call)| functions.contains(name).then_some(*call))
        };
        let call = call.or_else(last_called);
        let call = call.or_else(|| entry().then_some(PAGE_FAULT_ENTRY));
        let is_place = |name: &&&str| call_of(name).is_none() && !FAULTS.contains(*name);
        let mut below = functions.iter();
        let function = below.find(|name| !has_prefix(name, &SCHEDULER));
        let function = function.filter(is_place).copied();
        let caller = match function {
            Some(function) if is_general(function) => below.find(|name| !is_general(name)),
            _ => None,
        };
        let owned = |name: Option<&str>| name.unwrap_or_default().to_owned();
        Self {
            call: owned(call),
            function: owned(function),
            caller: owned(caller.filter(is_place).copied()),
            is_frozen: false,
        }
    }
}

/// Returns the code that woke a thread, from the functions on the waker's stack, innermost first:
/// the function that released the lock, and the system call, work item or kernel thread that it
/// belongs to. A name is empty if it is unknown. Returns `None` if no lock was released, for example
/// if a signal or a timer woke the thread.
pub(crate) fn release(functions: &[&str]) -> Option<Place> {
    let wake = functions.iter().position(|&function| function == WAKE)?;
    let functions = sampled::above_interrupts(&functions[wake + 1..]);
    let is_general = |name: &str| matches!(name, "complete" | "up") || has_prefix(name, &RELEASES);
    let releasing = functions.iter().take_while(|name| is_general(name));
    let mut releasing = releasing.filter(|name| !WAKE_THREAD.contains(*name));
    releasing.next()?;
    let function = functions.iter().find(|name| !is_general(name))?;
    let call = functions.iter().rev().find_map(|name| call_of(name));
    let is_known = call_of(function).is_none() && !sampled::is_start(function);
    Some(Place {
        call: call.unwrap_or_default().to_owned(),
        function: if is_known { *function } else { "" }.to_owned(),
        ..Place::default()
    })
}

/// Returns the kernel code that a timer interrupted, from the addresses on its kernel stack. It is
/// empty if the interrupt came in user mode, and `None` if it is unknown.
pub(crate) fn interrupted<'a>(
    addresses: &[u64],
    is_softirq: bool,
    name: impl Fn(u64) -> Option<&'a str>,
) -> Option<Stack> {
    let named = |ip| name(ip).unwrap_or_default();
    let callers = addresses.iter().map(|ip| named(ip.wrapping_sub(1)));
    let mut functions: Vec<&str> = callers.collect();
    // The interrupted function itself did not call anything, so its address is exact.
    if let Some(exact) = sampled::interrupted_at(&functions)
        && let Some(function) = functions.get_mut(exact)
    {
        *function = named(addresses[exact]);
    }
    sampled::kernel_code(&functions, is_softirq)
}

/// The kernel stacks that the tracer has seen, under the keys that the BPF programs use. The maps
/// must never replace a stack.
#[derive(Debug, Default)]
pub(crate) struct Stacks {
    pub(crate) first: Option<StackTraceMap<MapData>>,
    /// Stacks whose bucket in `first` belongs to another stack.
    pub(crate) more: Option<StackTraceMap<MapData>>,
}

impl Sizes {
    /// Returns the number of kernel stacks that fit into each of the two maps. It is 1 if none are
    /// taken.
    pub(crate) fn stack_entries(self) -> u32 {
        let entries = match (self.profiling, self.takes_stacks()) {
            (true, _) => PROFILE_STACKS,
            (false, true) => STACKS,
            (false, false) => 1,
        };
        u32::try_from(entries).unwrap_or(u32::MAX)
    }
}

impl Stacks {
    /// Returns the addresses on a stack, innermost first.
    fn addresses(&self, key: u32) -> Option<Vec<u64>> {
        let more = u32::try_from(MORE_STACKS).unwrap_or(u32::MAX);
        let (map, key) = match key.checked_sub(more) {
            None => (&self.first, key),
            Some(key) => (&self.more, key),
        };
        let stack = map.as_ref()?.get(&key, 0).ok()?;
        let addresses = stack.frames().iter().map(|frame| frame.ip);
        Some(addresses.take_while(|&ip| ip != 0).collect())
    }

    /// Returns the functions on a stack, innermost first. Unknown ones are empty.
    fn functions<'a>(
        &self,
        key: u32,
        name: impl Fn(u64) -> Option<&'a str>,
    ) -> Option<Vec<&'a str>> {
        let addresses = self.addresses(key)?.into_iter();
        let functions = addresses.map(|ip| {
            // A return address may be the first byte after the function that made the call.
            name(ip.wrapping_sub(1)).unwrap_or_default()
        });
        Some(functions.collect())
    }
}

/// The places of all stacks, by key.
#[derive(Debug, Default)]
pub(crate) struct Places {
    stacks: Stacks,
    known: HashMap<u32, Place>,
    released: HashMap<u32, Option<Place>>,
    /// Interrupted kernel code by key, and by whether a softirq was interrupted. `None` if the stack
    /// does not show it.
    sampled: HashMap<(u32, bool), Option<Arc<str>>>,
    /// The same for the samples of a profile, whose stacks start with the interrupted code.
    profiled: HashMap<(u32, bool), Option<Arc<str>>>,
}

impl Places {
    pub(crate) fn new(stacks: Stacks) -> Self {
        Self {
            stacks,
            ..Self::default()
        }
    }

    /// Returns the place of the stack with this key. `name` returns the name of the function that
    /// contains an address.
    pub(crate) fn get<'a>(
        &mut self,
        key: u32,
        name: impl Fn(u64) -> Option<&'a str>,
    ) -> Option<&Place> {
        self.stacks.first.as_ref()?;
        let place = self.known.entry(key).or_insert_with(|| {
            let functions = self.stacks.functions(key, name);
            Place::from_stack(&functions.unwrap_or_default())
        });
        Some(place)
    }

    /// Returns the code that woke a thread, if the stack with this key shows it.
    pub(crate) fn release<'a>(
        &mut self,
        key: u32,
        name: impl Fn(u64) -> Option<&'a str>,
    ) -> Option<&Place> {
        let release = || release(&self.stacks.functions(key, name)?);
        self.released.entry(key).or_insert_with(release).as_ref()
    }

    /// Returns the kernel code that a sample with this key interrupted, in the folded form of
    /// [`Stack`]. It is empty if the interrupt came in user mode, and `None` if it is unknown.
    pub(crate) fn interrupted<'a>(
        &mut self,
        key: u32,
        is_softirq: bool,
        name: impl Fn(u64) -> Option<&'a str>,
    ) -> Option<Arc<str>> {
        let code = self.sampled.entry((key, is_softirq)).or_insert_with(|| {
            let code = interrupted(&self.stacks.addresses(key)?, is_softirq, name)?;
            Some(code.to_string().into())
        });
        code.clone()
    }

    /// Does the same as [`Places::interrupted`] for a sample of a profile.
    pub(crate) fn profiled<'a>(
        &mut self,
        key: u32,
        is_softirq: bool,
        name: impl Fn(u64) -> Option<&'a str>,
    ) -> Option<Arc<str>> {
        let code = self.profiled.entry((key, is_softirq)).or_insert_with(|| {
            // Only the innermost address is exact. The others are return addresses.
            let addresses = self.stacks.addresses(key)?.into_iter().enumerate();
            let exact = addresses.map(|(depth, ip)| ip - u64::from(depth > 0));
            let functions: Vec<&str> = exact.map(|ip| name(ip).unwrap_or_default()).collect();
            Some(sampled::code_on(&functions, is_softirq).to_string().into())
        });
        code.clone()
    }
}

#[cfg(test)]
mod tests;
