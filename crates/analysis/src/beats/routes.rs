//! Decides where each source's rows go. This happens once per source.

use ticktax_model::kernel_words::{TaskDetail, is_bound_worker, is_worker};
use ticktax_model::recording::ProbeKind;
use ticktax_model::victim::OffCpuReason;
use ticktax_model::{Nanos, Owner, Source, SourceId};

use super::stream::{Identity, Key};
use super::streams::{GroupId, NONE, StreamId, Streams};
use crate::timeline::{Event, Occupant, Role};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Route {
    Ignore,
    /// Rows that only show that the CPU was observed, such as idle rows.
    Base,
    /// An interrupt or softirq, with one stream per CPU.
    Frame(GroupId),
    /// A bound worker's work item, with one stream per CPU.
    Work(GroupId),
    /// A thread, or a work item that can run on any CPU.
    Thread(StreamId),
    Gap(ProbeKind),
    Wait(StreamId),
}

/// Routes of all sources seen, indexed by [`SourceId`].
#[derive(Debug, Default)]
pub(super) struct Routes(Vec<Option<Route>>);

impl Routes {
    #[inline]
    pub(super) fn known(&self, id: SourceId) -> Option<Route> {
        self.0.get(id.0 as usize).copied().flatten()
    }

    /// Chooses a route for the new source that `event` comes from. `begin` is when the observation
    /// started.
    #[cold]
    pub(super) fn enter(
        &mut self,
        event: &Event<'_>,
        streams: &mut Streams,
        begin: Nanos,
    ) -> Route {
        let id = event.span.source;
        let index = id.0 as usize;
        if index >= self.0.len() {
            self.0.resize(index + 1, None);
        }
        let source = Entering {
            source: event.sources.get(id),
            id,
            begin,
        };
        let route = source.route(event.roles.role(id), streams);
        self.0[index] = Some(route);
        route
    }
}

/// Returns whether a source is a work item that a kernel worker ran, as opposed to the worker's own
/// activity.
pub(super) fn is_work_item(source: &Source) -> bool {
    let function = &*source.detail;
    source.owner == Owner::Kernel
        && is_worker(&source.name)
        && !function.is_empty()
        && TaskDetail::from_name(function).is_none()
}

/// A source whose route is being decided.
struct Entering<'a> {
    source: &'a Source,
    id: SourceId,
    begin: Nanos,
}

impl Entering<'_> {
    fn route(&self, role: Role, streams: &mut Streams) -> Route {
        match role {
            Role::OnCpu(Occupant::Idle) => Route::Base,
            Role::Gap(probe) => Route::Gap(probe),
            Role::Interrupt(_) => Route::Frame(streams.group(Identity::of_frame(self.source))),
            Role::Steal | Role::Frame | Role::Late(_) => Route::Ignore,
            Role::OffCpu(off) if off.reason == Some(OffCpuReason::Timer) => Route::Ignore,
            Role::OffCpu(_) => match self.stream(Identity::of_thread(self.source), streams) {
                NONE => Route::Ignore,
                stream => Route::Wait(stream),
            },
            Role::OnCpu(Occupant::Thread(on)) if on.owner == Owner::Probe => Route::Base,
            Role::OnCpu(Occupant::Thread(on))
                if on.owner == Owner::Kernel && is_worker(&self.source.name) =>
            {
                self.work(streams)
            }
            Role::OnCpu(_) => self.thread(Identity::of_thread(self.source), streams),
        }
    }

    /// Returns the route for a kernel worker's rows. Each work item function has its own stream.
    fn work(&self, streams: &mut Streams) -> Route {
        if !is_work_item(self.source) {
            Route::Base
        } else if is_bound_worker(&self.source.name) {
            Route::Work(streams.group(Identity::of_work(self.source)))
        } else {
            self.thread(Identity::of_work(self.source), streams)
        }
    }

    fn thread(&self, identity: Identity, streams: &mut Streams) -> Route {
        match self.stream(identity, streams) {
            NONE => Route::Base,
            stream => Route::Thread(stream),
        }
    }

    fn stream(&self, identity: Identity, streams: &mut Streams) -> StreamId {
        let key = Key {
            identity,
            cpu: None,
        };
        streams.of_source(key, self.begin, self.id)
    }
}
