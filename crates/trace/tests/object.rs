//! Checks the compiled BPF objects against the list of programs, and against the constants that the
//! records share with the model. Also checks that the object for old kernels uses only features
//! that those kernels support.

use std::collections::{BTreeMap, BTreeSet};

use object::{Object, ObjectSection, ObjectSymbol, SymbolKind};
use ticktax_model::Histogram;
use ticktax_trace::record::HISTOGRAM_BUCKETS;
use ticktax_trace::{Attach, HOOKS};

const OBJECT: &[u8] = include_bytes!("../bpf/ticktax.bpf.o");
const BEFORE_5_12: &[u8] = include_bytes!("../bpf/before_5_12.bpf.o");

fn parsed(object: &'static [u8]) -> object::File<'static> {
    object::File::parse(object).expect("the object is an ELF file")
}

#[test]
fn histograms_have_the_models_buckets() {
    assert_eq!(HISTOGRAM_BUCKETS, Histogram::BUCKETS);
}

/// Returns the programs in the object by name, each with its section, which determines where it is
/// attached. Functions in `.text` are not programs, but are called by programs.
fn programs(object: &'static [u8]) -> BTreeMap<String, String> {
    let object = parsed(object);
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
fn hooks_list_the_programs_of_both_objects() {
    let hooks: BTreeMap<String, String> = HOOKS
        .iter()
        .flat_map(|hook| hook.programs)
        .map(|&(program, attach)| {
            let section = match attach {
                Attach::Tracepoint => format!("tp_btf/{program}"),
                Attach::RawTracepoint => format!("raw_tp/{program}"),
                Attach::Shared(_) => "raw_tp".to_owned(),
                Attach::FunctionEntry(function) => format!("fentry/{function}"),
                Attach::FunctionExit(function) => format!("fexit/{function}"),
                Attach::Clock => "perf_event".to_owned(),
                Attach::Kvm => "tracepoint".to_owned(),
            };
            (program.to_owned(), section)
        })
        .collect();
    assert_eq!(programs(OBJECT), programs(BEFORE_5_12));
    let programs = programs(OBJECT);
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
fn no_program_is_listed_twice() {
    let mut seen = BTreeSet::new();
    let twice: Vec<(&str, &str)> = HOOKS
        .iter()
        .flat_map(|hook| hook.programs)
        .map(|&(program, attach)| match attach {
            Attach::Shared(tracepoint) => (program, tracepoint),
            _ => (program, ""),
        })
        .filter(|name| !seen.insert(*name))
        .collect();
    assert!(twice.is_empty(), "in HOOKS more than once: {twice:?}");
}

/// The parts of a BPF instruction that the tests check
/// (Documentation/bpf/standardization/instruction-set.rst in Linux).
struct Instruction {
    code: u8,
    source: u8,
    immediate: i32,
}

/// Returns the instructions of all programs and functions in an object.
fn instructions(object: &'static [u8]) -> Vec<Instruction> {
    const BYTES: usize = 8;
    let object = parsed(object);
    let code = object
        .sections()
        .filter(|section| section.kind() == object::SectionKind::Text);
    let data = code.flat_map(|section| section.data().expect("it can be read").chunks_exact(BYTES));
    data.map(|bytes| Instruction {
        code: bytes[0],
        source: bytes[1] >> 4,
        immediate: i32::from_le_bytes([bytes[4], bytes[5], bytes[6], bytes[7]]),
    })
    .collect()
}

#[test]
fn old_kernels_support_all_instructions_of_their_object() {
    /// Opcodes of atomic operations on 32 and 64 bits. The immediate selects the operation, and 0
    /// means an addition that returns no result.
    const ATOMIC: [u8; 2] = [0xc3, 0xdb];
    const CALL: u8 = 0x85;
    /// Highest number of a helper in Linux 5.10: `bpf_redirect_peer`.
    const LAST_HELPER: i32 = 155;

    let unsupported = |object| {
        let is_unsupported = |instruction: &Instruction| {
            ATOMIC.contains(&instruction.code) && instruction.immediate != 0
                || instruction.code == CALL
                    && instruction.source == 0
                    && instruction.immediate > LAST_HELPER
        };
        instructions(object)
            .iter()
            .filter(|instruction| is_unsupported(instruction))
            .count()
    };
    assert_eq!(unsupported(BEFORE_5_12), 0);
    // The object for new kernels must fail this check. Otherwise, passing it would prove nothing.
    assert!(unsupported(OBJECT) > 10);
}
