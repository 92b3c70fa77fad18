//! Threads in a trace: their names, their processes, and whether they wait for a wake-up.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use foldhash::fast::RandomState;
use ticktax_model::kernel_words::is_worker;
use ticktax_model::{Kind, Owner, Source, SourceId, SourceTable, Thread};

use crate::event::Left;
use crate::names::{NameId, Names};

/// Process id of `kthreadd`, the parent of all other kernel threads.
const KTHREADD: i32 = 2;

/// Name prefixes of kernel threads, for traces that do not contain the threads' parents.
const KERNEL_THREADS: &[&str] = &[
    "cpuhp/",
    "idle_inject/",
    "irq/",
    "jbd2/",
    "kcompactd",
    "kdevtmpfs",
    "khugepaged",
    "khungtaskd",
    "ksoftirqd/",
    "kswapd",
    "kthreadd",
    "ktimers/",
    "migration/",
    "mmcqd/",
    "rcu_",
    "rcub/",
    "rcuc/",
    "rcuog/",
    "rcuop/",
    "rcuos/",
    "stopper/",
    "swapper/",
    "watchdog/",
];

/// A thread with its latest facts.
#[derive(Debug)]
struct Known {
    name: Option<NameId>,
    process: Option<i32>,
    parent: Option<i32>,
    /// Source of the thread's rows under its current name, without a work item.
    source: Option<SourceId>,
    left: Left,
    woken: bool,
}

impl Default for Known {
    fn default() -> Self {
        Self {
            name: None,
            process: None,
            parent: None,
            source: None,
            left: Left::Unknown,
            woken: false,
        }
    }
}

/// All threads in a trace.
#[derive(Debug, Default)]
pub(crate) struct Threads {
    known: HashMap<i32, Known, RandomState>,
    /// Threads with rows whose process is not known.
    without_process: HashSet<i32, RandomState>,
    /// Threads with rows but without a name.
    unnamed: HashSet<i32, RandomState>,
}

impl Threads {
    /// Sets the name of a thread.
    pub(crate) fn name(&mut self, tid: i32, name: NameId) {
        let known = self.known.entry(tid).or_default();
        if known.name != Some(name) {
            known.name = Some(name);
            known.source = None;
        }
    }

    /// Sets the process of a thread.
    pub(crate) fn process(&mut self, tid: i32, process: i32) {
        let known = self.known.entry(tid).or_default();
        if known.process != Some(process) {
            known.process = Some(process);
            known.source = None;
        }
    }

    /// Sets the process that created a thread's process.
    pub(crate) fn parent(&mut self, tid: i32, parent: i32) {
        let known = self.known.entry(tid).or_default();
        known.parent = Some(parent);
        known.source = None;
    }

    /// Notes that a thread is new, so that it becomes runnable without a wake-up. An earlier thread
    /// can have had the same id.
    pub(crate) fn created(&mut self, tid: i32) {
        let known = self.known.entry(tid).or_default();
        known.left = Left::Unknown;
        known.woken = true;
        known.source = None;
    }

    /// Notes that a thread left its CPU.
    pub(crate) fn left(&mut self, tid: i32, left: Left) {
        let known = self.known.entry(tid).or_default();
        known.left = left;
        known.woken = false;
    }

    /// Notes a wake-up. Returns whether it is the first since the thread left its CPU.
    pub(crate) fn woken(&mut self, tid: i32) -> bool {
        let known = self.known.entry(tid).or_default();
        !std::mem::replace(&mut known.woken, true)
    }

    /// Notes that a thread runs. Returns whether it had gone to sleep and was not woken since.
    pub(crate) fn ran(&mut self, tid: i32) -> bool {
        let known = self.known.entry(tid).or_default();
        let missed = known.left == Left::Asleep && !known.woken;
        known.left = Left::Unknown;
        known.woken = true;
        missed
    }

    /// Returns the source of a thread's rows. `work` is the function of the work item that the
    /// thread executes.
    pub(crate) fn source(
        &mut self,
        tid: i32,
        work: Option<NameId>,
        names: &Names,
        sources: &mut SourceTable,
    ) -> SourceId {
        if tid == 0 {
            return sources.intern(Source::idle());
        }
        let known = self.known.entry(tid).or_default();
        if let (Some(source), None) = (known.source, work) {
            return source;
        }
        let name: Arc<str> = if let Some(name) = known.name {
            names.get(name).clone()
        } else {
            self.unnamed.insert(tid);
            format!("thread {tid}").into()
        };
        let is_kernel = match known.parent {
            Some(parent) => parent == KTHREADD || tid == KTHREADD,
            None => is_kernel_thread(&name),
        };
        // Each kernel thread is a separate process.
        let process = known.process.or(is_kernel.then_some(tid));
        if process.is_none() {
            self.without_process.insert(tid);
        }
        let pid = process.unwrap_or(tid);
        let program = match self.known.get(&pid).and_then(|known| known.name) {
            Some(program) => names.get(program).clone(),
            None => name.clone(),
        };
        let id = sources.intern(Source {
            kind: Kind::Task,
            owner: if is_kernel {
                Owner::Kernel
            } else {
                Owner::Program
            },
            name,
            detail: work.map_or_else(|| "".into(), |work| names.get(work).clone()),
            thread: Some(Thread { pid, tid, program }),
        });
        if work.is_none() {
            self.known.entry(tid).or_default().source = Some(id);
        }
        id
    }

    /// Number of threads with rows whose process is not known.
    pub(crate) fn without_process(&self) -> u64 {
        self.without_process.len() as u64
    }

    /// Number of threads with rows but without a name.
    pub(crate) fn unnamed(&self) -> u64 {
        self.unnamed.len() as u64
    }
}

fn is_kernel_thread(name: &str) -> bool {
    is_worker(name) || KERNEL_THREADS.iter().any(|prefix| name.starts_with(prefix))
}
