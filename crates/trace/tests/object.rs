//! Holds the list of programs, and what the records borrow from the model, against the compiled
//! object.

use std::collections::{BTreeMap, BTreeSet};

use object::{Object, ObjectSection, ObjectSymbol, SymbolKind};
use ticktax_model::Histogram;
use ticktax_trace::record::HISTOGRAM_BUCKETS;
use ticktax_trace::{Attach, HOOKS};

const OBJECT: &[u8] = include_bytes!("../bpf/ticktax.bpf.o");

fn object() -> object::File<'static> {
    object::File::parse(OBJECT).expect("the object is an ELF file")
}

#[test]
fn histograms_are_the_models() {
    assert_eq!(HISTOGRAM_BUCKETS, Histogram::BUCKETS);
}

/// The programs in the object by name, with the section that says what each is attached to.
/// Functions in `.text` are no programs but called by them.
fn programs() -> BTreeMap<String, String> {
    let object = object();
    object
        .symbols()
        .filter(|symbol| symbol.kind() == SymbolKind::Text && symbol.is_global())
        .filter_map(|symbol| {
            let section = object.section_by_index(symbol.section_index()?).ok()?;
            let name = symbol.name().expect("a symbol has a name").to_owned();
            Some((
                name,
                section.name().expect("a section has a name").to_owned(),
            ))
        })
        .filter(|(_, section)| section != ".text")
        .collect()
}

#[test]
fn hooks_are_the_programs_of_the_object() {
    let hooks: BTreeMap<String, String> = HOOKS
        .iter()
        .flat_map(|hook| hook.programs)
        .map(|&(program, attach)| {
            let section = match attach {
                Attach::Tracepoint => format!("tp_btf/{program}"),
                Attach::RawTracepoint => format!("raw_tp/{program}"),
                Attach::FunctionEntry(function) => format!("fentry/{function}"),
                Attach::FunctionExit(function) => format!("fexit/{function}"),
            };
            (program.to_owned(), section)
        })
        .collect();
    let programs = programs();
    let hooks: BTreeSet<_> = hooks.iter().collect();
    let programs: BTreeSet<_> = programs.iter().collect();
    let only_hooks: Vec<_> = hooks.difference(&programs).collect();
    let only_programs: Vec<_> = programs.difference(&hooks).collect();
    assert!(
        only_hooks.is_empty() && only_programs.is_empty(),
        "only in HOOKS: {only_hooks:?}\nonly in the object: {only_programs:?}"
    );
}

#[test]
fn no_program_is_hooked_twice() {
    let mut seen = BTreeSet::new();
    let twice: Vec<&str> = HOOKS
        .iter()
        .flat_map(|hook| hook.programs)
        .map(|&(program, _)| program)
        .filter(|program| !seen.insert(*program))
        .collect();
    assert!(twice.is_empty(), "in HOOKS more than once: {twice:?}");
}
