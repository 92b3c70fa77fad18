//! Sums up a victim while it is still being recorded.

use std::collections::BTreeMap;

use ticktax_model::glance::ProgramGlance;
use ticktax_model::victim::ThreadState;
use ticktax_model::{Nanos, SourceTable};

use super::Victim;

impl Victim {
    /// Sums up the threads known so far to be the victim's.
    pub(crate) fn glance(&self, sources: &SourceTable) -> ProgramGlance {
        let mut glance = ProgramGlance::default();
        for life in self.threads.values().filter(|life| life.followed) {
            for (state, tally) in &life.states {
                if state.is_wanted() {
                    glance.wanted += tally.time;
                }
                if *state == ThreadState::Waiting {
                    glance.waited += tally.time;
                    glance.longest = glance.longest.max(tally.longest);
                }
            }
        }
        let mut behind: BTreeMap<&str, Nanos> = BTreeMap::new();
        for (&(id, _), waits) in &self.behind {
            let source = sources.get(id);
            let thread = source.thread.as_ref();
            let name = thread.map_or(&*source.name, |thread| &*thread.program);
            *behind.entry(name).or_default() += waits.sum.time;
        }
        let all = behind.into_iter();
        glance.behind = all.map(|(name, time)| (name.to_owned(), time)).collect();
        glance
            .behind
            .sort_by_key(|(_, time)| std::cmp::Reverse(*time));
        glance
    }
}
