//! The maps of the object, by the names that its source gives them.

pub(crate) const SPANS: &str = "spans";
pub(crate) const SUMS: &str = "sums";
pub(crate) const RESTS: &str = "rests";
pub(crate) const STATES: &str = "states";
pub(crate) const CONTROLS: &str = "controls";
/// Waits of throttled threads that have not ended.
pub(crate) const THROTTLED: &str = "throttled";
/// The threads that are followed.
pub(crate) const THREADS: &str = "threads";

#[cfg(test)]
mod tests {
    use object::{Object, ObjectSection, ObjectSymbol, SymbolKind};

    use super::{CONTROLS, RESTS, SPANS, STATES, SUMS, THREADS, THROTTLED};
    use crate::load::OBJECT;

    /// A name that the object lacks would be noticed by nobody: what it is for would be left out.
    #[test]
    fn these_are_the_maps_of_the_object() {
        let object = object::File::parse(OBJECT).unwrap();
        let maps = object.section_by_name(".maps").unwrap().index();
        let symbols = object.symbols();
        let mut names: Vec<&str> = symbols
            .filter(|symbol| symbol.kind() == SymbolKind::Data)
            .filter(|symbol| symbol.section_index() == Some(maps))
            .filter_map(|symbol| symbol.name().ok())
            .collect();
        names.sort_unstable();
        let mut ours = [SPANS, SUMS, RESTS, STATES, CONTROLS, THROTTLED, THREADS];
        ours.sort_unstable();
        assert_eq!(names, ours);
    }
}
