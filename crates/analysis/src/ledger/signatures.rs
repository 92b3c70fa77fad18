//! Assigns signatures to gaps, so that similar gaps can be compared
//! ([`entry_exit`](super::entry_exit)).

use std::collections::HashMap;

use foldhash::fast::FixedState;
use ticktax_model::SourceId;
use ticktax_model::statement::Class;

use super::contents::SourceInGap;

/// Maximum number of exact signatures. Additional gaps are identified only by their first row.
const MAX_SIGNATURES: usize = 4_096;

/// How the kernel was entered and left in a gap. Nothing else affects durations as much.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct Shape {
    softirqs: bool,
    /// Whether another thread ran.
    switches: bool,
}

impl Shape {
    /// Adds a row of `class`, or a row that belongs to no account if `class` is `None`.
    pub(super) fn add(&mut self, class: Option<Class>) {
        match class {
            Some(Class::Softirq) => self.softirqs = true,
            // An unreported thread is booked as unexplained, but the kernel did switch to it.
            Some(
                Class::Program
                | Class::KernelThread
                | Class::Tool
                | Class::Probe
                | Class::Idle
                | Class::Unexplained,
            ) => self.switches = true,
            Some(
                Class::Irq
                | Class::Nmi
                | Class::Steal
                | Class::EntryExit
                | Class::HypervisorOrFirmware,
            )
            | None => {}
        }
    }
}

/// Assigns a number to each set of sources found in a gap.
#[derive(Debug, Default)]
pub(super) struct Signatures {
    by_sources: HashMap<Box<[SourceId]>, u32, FixedState>,
    /// For each source, the signature of gaps that contain nothing else. Most gaps contain a single
    /// source.
    alone: Vec<Option<u32>>,
    /// For each signature, the source of the first row and the shape of the first gap.
    pub(super) first: Vec<(SourceId, Shape)>,
    /// Reused for each lookup, to avoid allocation.
    sources: Vec<SourceId>,
}

impl Signatures {
    /// Returns the signature of a gap of `shape` that contained `held`, adding it if it is new.
    /// Returns `None` if the gap was empty.
    pub(super) fn intern(&mut self, held: &[SourceInGap], shape: Shape) -> Option<usize> {
        let first = (held.first()?.source, shape);
        if held.len() > 1 {
            return Some(self.look_up(first, held));
        }
        let place = first.0.0 as usize;
        if let Some(&Some(known)) = self.alone.get(place) {
            return Some(known as usize);
        }
        let number = self.look_up(first, held);
        if place >= self.alone.len() {
            self.alone.resize(place + 1, None);
        }
        self.alone[place] = u32::try_from(number).ok();
        Some(number)
    }

    /// Returns the signature for a set of sources, adding it if it is new. `first` contains the
    /// source of the first row.
    fn look_up(&mut self, first: (SourceId, Shape), held: &[SourceInGap]) -> usize {
        self.sources.clear();
        self.sources.extend(held.iter().map(|held| held.source));
        self.sources[1..].sort_unstable();
        if let Some(&known) = self.by_sources.get(&self.sources[..]) {
            return known as usize;
        }
        if self.first.len() >= MAX_SIGNATURES {
            // This key is unique, because no real set contains the same source twice.
            self.sources.clear();
            self.sources.extend([first.0, first.0]);
            if let Some(&known) = self.by_sources.get(&self.sources[..]) {
                return known as usize;
            }
        }
        let new = self.first.len();
        self.first.push(first);
        let number = u32::try_from(new).expect("no more signatures than gaps");
        self.by_sources
            .insert(self.sources.clone().into_boxed_slice(), number);
        new
    }

    /// Returns whether all gaps with this signature contain the same sources. If not, they share
    /// only the first source.
    pub(super) fn is_exact(signature: usize) -> bool {
        signature < MAX_SIGNATURES
    }
}

#[cfg(test)]
pub(super) mod tests {
    use ticktax_model::statement::Class;
    use ticktax_model::statement::Class::{
        EntryExit, HypervisorOrFirmware, Irq, Nmi, Softirq, Steal,
    };
    use ticktax_model::{Nanos, SourceId};

    use super::{MAX_SIGNATURES, Shape, Signatures, SourceInGap};

    /// Returns the contents of a gap in which each of these sources ran once.
    pub(in crate::ledger) fn held(sources: &[u32]) -> Vec<SourceInGap> {
        let one = |&source| SourceInGap {
            source: SourceId(source),
            own: Nanos(1),
            count: 1,
            longest: Nanos(1),
        };
        sources.iter().map(one).collect()
    }

    #[test]
    fn threads_and_softirqs_give_a_gap_its_shape() {
        let shape = |class| {
            let mut shape = Shape::default();
            shape.add(class);
            (shape.softirqs, shape.switches)
        };
        let classes_with = |wanted| {
            let classes = Class::ALL.into_iter();
            classes
                .filter(|&class| shape(Some(class)) == wanted)
                .collect::<Vec<_>>()
        };
        assert_eq!(classes_with((true, false)), [Softirq]);
        assert_eq!(
            classes_with((false, false)),
            [Irq, Nmi, EntryExit, HypervisorOrFirmware, Steal]
        );
        assert_eq!(shape(None), (false, false));
    }

    #[test]
    fn a_signature_is_the_first_source_and_the_set_of_the_others() {
        let mut signatures = Signatures::default();
        let mut number_of = |sources: &[u32]| signatures.intern(&held(sources), Shape::default());
        assert_eq!(number_of(&[]), None);
        assert_eq!(number_of(&[7]), number_of(&[7]));
        assert_eq!(number_of(&[7, 1, 2]), number_of(&[7, 2, 1]));
        assert_ne!(number_of(&[7, 1, 2]), number_of(&[1, 7, 2]));
        assert_ne!(number_of(&[7]), number_of(&[7, 1]));
    }

    #[test]
    fn signatures_beyond_the_maximum_are_identified_by_their_first_source() {
        let mut signatures = Signatures::default();
        let max = u32::try_from(MAX_SIGNATURES).unwrap();
        for source in 0..max {
            signatures.intern(&held(&[1, source + 10]), Shape::default());
        }
        let mut number_of =
            |sources: &[u32]| signatures.intern(&held(sources), Shape::default()).unwrap();
        assert!(Signatures::is_exact(number_of(&[1, 10])));
        assert!(!Signatures::is_exact(number_of(&[1, 2, 3])));
        assert_eq!(number_of(&[1, 2, 3]), number_of(&[1]));
        assert_ne!(number_of(&[1]), number_of(&[2]));
    }
}
