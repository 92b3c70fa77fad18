//! Finds the code that kept others waiting, from samples.
//!
//! A sample is taken only while somebody waits for the CPU, or while a followed thread runs. A
//! single innermost function says little: a long system call spends its time in many small ones.
//! The reported function is therefore the innermost one that more than half of the samples have on
//! their stack, below the same callers. Samples that found a tracing program are ignored: the time
//! belongs to the tracer, not to the code that it interrupted.
//!
//! # Memory
//! At most [`MAX`] samples are kept. The rest is ignored, so a long recording is represented by its
//! beginning.

use std::collections::BTreeMap;
use std::sync::Arc;

use ticktax_model::kernel_walk::{KernelList, SampledWalk};
use ticktax_model::recording::{CodeFile, Header, Stack, StackFrame};
use ticktax_model::sampled_code::{SampledCode, SampledPlace, SampledSource};
use ticktax_model::{Kind, Nanos, SourceId, SourceTable};

use crate::fast_map::FastMap;
use crate::names::named;
use crate::timeline::{Event, EventKind};

/// Maximum number of samples kept, of 16 bytes each.
const MAX: usize = 1 << 18;
/// Number of places reported if no place has most of the samples.
const PLACES: usize = 2;

/// Maximum number of sources reported.
const SOURCES: usize = 20;

/// Name, kind and process ID under which a source is reported.
type Name = (String, Kind, Option<i32>);

/// The names of the functions in a recording's files.
#[derive(Debug)]
pub(crate) struct FunctionNames<'a>(FastMap<&'a str, &'a CodeFile>);

impl<'a> FunctionNames<'a> {
    pub(crate) fn new(files: &'a [CodeFile]) -> Self {
        Self(files.iter().map(|file| (&*file.name, file)).collect())
    }

    /// Returns the function at a sampled offset in a file, if it is known.
    pub(crate) fn get(&self, file: &str, offset: u64) -> Option<&'a str> {
        self.0.get(file)?.function(offset)
    }

    /// Names the function of user-mode code, if it is known.
    pub(crate) fn named(&self, stack: Stack) -> Stack {
        stack.with_function(|file, offset| self.get(file, offset))
    }
}

/// The samples of a recording.
#[derive(Debug, Default)]
pub(crate) struct Samples {
    all: Vec<Sample>,
    stacks: Vec<Stack>,
    known: FastMap<Arc<str>, u32>,
    /// Numbers of objects that functions can walk.
    objects: BTreeMap<KernelList, u64>,
}

#[derive(Clone, Copy, Debug)]
struct Sample {
    at: Nanos,
    source: SourceId,
    /// Index in `stacks`.
    stack: u32,
}

impl Samples {
    pub(crate) fn event(&mut self, event: &Event<'_>) {
        if let EventKind::Sampled(code) = event.kind() {
            self.add(event.span.start, event.span.source, code);
        }
    }

    /// Adds a sample of `code`, in folded form.
    pub(crate) fn add(&mut self, at: Nanos, source: SourceId, code: &Arc<str>) {
        if self.all.len() >= MAX {
            return;
        }
        let stack = self.known.get(code).copied().unwrap_or_else(|| {
            let stack = u32::try_from(self.stacks.len()).unwrap_or(u32::MAX);
            self.stacks.push(Stack::from_folded(code));
            self.known.insert(Arc::clone(code), stack);
            stack
        });
        self.all.push(Sample { at, source, stack });
    }

    /// Names the functions of user-mode code as far as their names are known.
    pub(crate) fn named(mut self, functions: &FunctionNames<'_>) -> Self {
        for stack in &mut self.stacks {
            *stack = functions.named(std::mem::take(stack));
        }
        self
    }

    /// Sets the numbers of objects that functions can walk. A number may have changed during the
    /// recording, so the larger of both readings counts.
    pub(crate) fn with_objects(mut self, header: &Header) -> Self {
        for (&list, &count) in
            (header.before.kernel_objects.iter()).chain(&header.after.kernel_objects)
        {
            let most = self.objects.entry(list).or_default();
            *most = count.max(*most);
        }
        self
    }

    /// Returns the programs, kernel threads and softirqs with the most samples.
    pub(crate) fn by_source(&self, sources: &SourceTable) -> Vec<SampledSource> {
        let mut names: FastMap<SourceId, Name> = FastMap::default();
        let mut groups: BTreeMap<Name, Vec<Frames<'_>>> = BTreeMap::new();
        for sample in &self.all {
            let id = sample.source;
            let name = names.entry(id).or_insert_with(|| named(id, sources));
            let stack = self.stacks[sample.stack as usize].frames();
            groups.entry(name.clone()).or_default().push(stack);
        }
        let coded = groups
            .into_iter()
            .filter_map(|((name, kind, pid), stacks)| {
                Some(SampledSource {
                    name,
                    kind,
                    pid,
                    code: self.counted(code_of(&stacks)?),
                })
            });
        let mut coded: Vec<SampledSource> = coded.collect();
        coded.sort_by_key(|source| std::cmp::Reverse(source.code.samples));
        coded.truncate(SOURCES);
        coded
    }

    /// Returns the code of all sources that `belongs` selects, in samples taken at times that `when`
    /// selects. Returns `None` if no sample matches.
    pub(crate) fn code(
        &self,
        belongs: impl Fn(SourceId) -> bool,
        when: impl Fn(SourceId, Nanos) -> bool,
    ) -> Option<SampledCode> {
        let mut is_known: FastMap<SourceId, bool> = FastMap::default();
        let samples = self.all.iter().filter(|sample| {
            let id = sample.source;
            *is_known.entry(id).or_insert_with(|| belongs(id)) && when(id, sample.at)
        });
        let stacks = samples.map(|sample| self.stacks[sample.stack as usize].frames());
        Some(self.counted(code_of(&stacks.collect::<Vec<_>>())?))
    }

    /// Returns the times at which samples found a kernel function in the sources that `belongs`
    /// selects.
    pub(crate) fn times_in(
        &self,
        function: &str,
        belongs: impl Fn(SourceId) -> bool,
    ) -> Vec<Nanos> {
        let contains = |stack: &Stack| {
            let mut frames = stack.frames().iter();
            frames.any(|frame| frame.is_kernel && frame.name == function)
        };
        let is_in: Vec<bool> = self.stacks.iter().map(contains).collect();
        let samples = self.all.iter();
        samples
            .filter(|sample| is_in[sample.stack as usize] && belongs(sample.source))
            .map(|sample| sample.at)
            .collect()
    }

    /// Adds the number of objects that the code walks.
    fn counted(&self, mut code: SampledCode) -> SampledCode {
        if let Some(walk) = &mut code.walk {
            walk.objects = self.objects.get(&walk.list).copied();
        }
        code
    }
}

/// Returns whether two sources are the same thread or, for other sources, have the same name.
pub(crate) fn is_same(a: SourceId, b: SourceId, sources: &SourceTable) -> bool {
    let (a, b) = (sources.get(a), sources.get(b));
    let tid = |source: &ticktax_model::Source| source.thread.as_ref().map(|thread| thread.tid);
    a.kind == b.kind && tid(a) == tid(b) && (tid(a).is_some() || a.name == b.name)
}

type Frames<'a> = &'a [StackFrame];

/// Finds the code that most of the stacks have in common. Unknown stacks are empty.
fn code_of(stacks: &[Frames<'_>]) -> Option<SampledCode> {
    let is_own = |stack: &Frames<'_>| !stack.last().is_some_and(StackFrame::is_tracing);
    let stacks = &*stacks.iter().copied().filter(is_own).collect::<Vec<_>>();
    if stacks.is_empty() {
        return None;
    }
    let groups = by_frame(stacks, 0);
    let is_most = |group: &&Vec<Frames<'_>>| group.len() * 2 > stacks.len();
    let places = if let Some(group) = groups.first().filter(is_most) {
        vec![place(group, stacks.len())]
    } else {
        let groups = groups.iter().take(PLACES);
        groups.map(|group| place(group, group.len())).collect()
    };
    Some(SampledCode {
        samples: stacks.len() as u64,
        places,
        walk: walk(stacks),
    })
}

/// Finds the kernel function that walks a list, if more than half of the stacks contain it.
fn walk(stacks: &[Frames<'_>]) -> Option<SampledWalk> {
    let mut walks: BTreeMap<&str, (KernelList, u64)> = BTreeMap::new();
    for stack in stacks {
        let mut kernel = stack.iter().filter(|frame| frame.is_kernel);
        let walk =
            kernel.find_map(|frame| Some((&*frame.name, KernelList::walked_by(&frame.name)?)));
        if let Some((function, list)) = walk {
            walks.entry(function).or_insert((list, 0)).1 += 1;
        }
    }
    let (function, (list, samples)) = walks.into_iter().max_by_key(|(_, (_, samples))| *samples)?;
    (samples * 2 > stacks.len() as u64).then(|| SampledWalk {
        function: function.to_owned(),
        list,
        samples,
        objects: None,
        longest: None,
        per_object: None,
    })
}

/// Groups stacks by their frame at `depth`, largest group first. Omits stacks that end above.
fn by_frame<'a>(stacks: &[Frames<'a>], depth: usize) -> Vec<Vec<Frames<'a>>> {
    let mut groups: BTreeMap<&StackFrame, Vec<Frames<'a>>> = BTreeMap::new();
    for stack in stacks {
        if let Some(frame) = stack.get(depth) {
            groups.entry(frame).or_default().push(stack);
        }
    }
    let mut groups: Vec<_> = groups.into_values().collect();
    groups.sort_by_key(|group| std::cmp::Reverse(group.len()));
    groups
}

/// Returns the innermost function that more than half of `all` samples have in common. `stacks`
/// have the same outermost frame.
fn place(stacks: &[Frames<'_>], all: usize) -> SampledPlace {
    let mut common = stacks.to_vec();
    let mut depth = 1;
    while let Some(group) = by_frame(&common, depth).into_iter().next()
        && group.len() * 2 > all
    {
        common = group;
        depth += 1;
    }
    let (outermost, function) = (&common[0][0], &common[0][depth - 1]);
    let is_caller = depth > 1 && outermost.is_kernel;
    // The offset contains the file's name.
    let is_in_file =
        depth > 1 && !function.is_kernel && function.offset_in(&outermost.name).is_none();
    SampledPlace {
        function: function.name.clone(),
        file: is_in_file.then(|| outermost.name.clone()),
        called_from: is_caller.then(|| outermost.name.clone()),
        is_kernel: function.is_kernel,
        samples: common.len() as u64,
    }
}

#[cfg(test)]
mod tests;
