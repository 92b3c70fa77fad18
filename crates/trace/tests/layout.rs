//! Holds the Rust side of the records, and the list of programs, against what `bpf/` says: types
//! and programs as the compiled object has them, constants as `record.h` writes them.

use std::collections::{BTreeMap, BTreeSet};
use std::mem::offset_of;

use btf_rs::{Btf, Type};
use object::{Object, ObjectSection, ObjectSymbol, SymbolKind};
use ticktax_model::Histogram;
use ticktax_trace::record::{
    CpuControl, CpuState, Frame, Life, MAX_CPUS, MAX_DEPTH, RESTS_PER_CPU, SpanRecord, SumRecord,
    detail, flag, kind, run, vector,
};
use ticktax_trace::{Attach, HOOKS};

const OBJECT: &[u8] = include_bytes!("../bpf/ticktax.bpf.o");
const HEADER: &str = include_str!("../bpf/record.h");

/// Macros of the header that only the programs use.
const NOT_MIRRORED: &[&str] = &["MAX_FOLLOWED", "MAX_THROTTLED"];

/// A field of a record, on either side.
#[derive(Debug, PartialEq, Eq)]
struct Field {
    name: String,
    offset: usize,
    size: usize,
    /// Where it is an integer: its name in Rust.
    integer: Option<String>,
}

impl Field {
    /// The field as Rust has it; `_get` only says of what type it is.
    fn of_rust<R, F>(name: &str, offset: usize, _get: fn(&R) -> &F) -> Self {
        let type_name = std::any::type_name::<F>();
        let is_integer = matches!(type_name, "u8" | "u16" | "u32" | "u64" | "i64");
        Self {
            name: name.to_owned(),
            offset,
            size: size_of::<F>(),
            integer: is_integer.then(|| type_name.to_owned()),
        }
    }
}

/// The fields and the size of a Rust struct. The pattern has no `..`: a field that is not listed
/// does not compile.
macro_rules! record {
    ($record:ident { $($field:ident $(= $name:literal)?),* $(,)? }) => {{
        let _ = |$record { $($field: _),* }: $record| ();
        let fields = vec![$(Field::of_rust(
            [$($name,)? stringify!($field)][0],
            offset_of!($record, $field),
            |record: &$record| &record.$field,
        )),*];
        (fields, size_of::<$record>())
    }};
}

/// The fields and the size of a C struct, from the object's type information.
fn c_record(btf: &Btf, name: &str) -> (Vec<Field>, usize) {
    let types = btf
        .resolve_types_by_name(name)
        .expect("the object knows the struct");
    let [Type::Struct(record)] = &types[..] else {
        panic!("{name} is not one struct: {types:?}")
    };
    let field = |member: &btf_rs::Member| {
        let field_type = btf
            .resolve_chained_type(member)
            .expect("a member has a type");
        Field {
            name: btf.resolve_name(member).expect("a member has a name"),
            offset: member.bit_offset() as usize / 8,
            size: size(btf, &field_type),
            integer: integer(btf, &field_type),
        }
    };
    (record.members.iter().map(field).collect(), record.size())
}

/// The type that a chain of `typedef`s ends in.
fn plain(btf: &Btf, of: &Type) -> Type {
    match of {
        Type::Typedef(named) => plain(
            btf,
            &btf.resolve_chained_type(named)
                .expect("a typedef names a type"),
        ),
        other => other.clone(),
    }
}

fn size(btf: &Btf, of: &Type) -> usize {
    match plain(btf, of) {
        Type::Int(int) => int.size(),
        Type::Struct(record) => record.size(),
        Type::Array(array) => {
            let element = btf
                .resolve_chained_type(&array)
                .expect("an array has elements");
            array.len() * size(btf, &element)
        }
        other => panic!("a record holds a {}", other.name()),
    }
}

/// The name that an integer type has in Rust.
fn integer(btf: &Btf, of: &Type) -> Option<String> {
    let Type::Int(int) = plain(btf, of) else {
        return None;
    };
    let sign = if int.is_signed() { 'i' } else { 'u' };
    Some(format!("{sign}{}", int.size() * 8))
}

fn object() -> object::File<'static> {
    object::File::parse(OBJECT).expect("the object is an ELF file")
}

/// The type information that the object carries.
fn types() -> Btf {
    let object = object();
    let section = object
        .section_by_name(".BTF")
        .expect("the object has type information");
    let bytes = section.data().expect("the type information is in the file");
    Btf::from_bytes(bytes).expect("the type information can be read")
}

#[test]
fn records_are_laid_out_as_in_c() {
    let btf = types();
    let rust = [
        (
            "span_record",
            record!(SpanRecord {
                start, dur, self_ns = "self", detail, seq, tid, tgid, kind, flags, cpu, comm,
            }),
        ),
        (
            "sum_record",
            record!(SumRecord {
                key, detail, count, self_ns = "self", wall, max, tid, tgid, kind, flags, cpu,
                reserved, comm, histogram,
            }),
        ),
        (
            "frame",
            record!(Frame {
                start,
                child,
                detail,
                id,
                kind,
                flags,
                reserved
            }),
        ),
        (
            "cpu_state",
            record!(CpuState {
                stack,
                depth,
                opened,
                last,
                head,
                events,
                lost,
                lost_self,
                mismatched,
                folded,
                unfollowed,
                missed,
                ticks_stopped,
                reserved,
            }),
        ),
        (
            "life",
            record!(Life {
                since,
                detail,
                cpu,
                tgid,
                flags,
                comm,
            }),
        ),
        (
            "cpu_control",
            record!(CpuControl {
                tail,
                running,
                until,
                reserved
            }),
        ),
    ];
    let mut different = Vec::new();
    for (name, (rust, rust_size)) in rust {
        let (c, c_size) = c_record(&btf, name);
        // Offsets tell the order, so each side's fields may be looked for on the other.
        let only_rust = rust.iter().filter(|field| !c.contains(field));
        let only_c = c.iter().filter(|field| !rust.contains(field));
        different.extend(only_rust.map(|field| format!("{name}, in Rust: {field:?}")));
        different.extend(only_c.map(|field| format!("{name}, in C: {field:?}")));
        if rust_size != c_size {
            different.push(format!("{name}: {rust_size} bytes in Rust, {c_size} in C"));
        }
    }
    assert!(different.is_empty(), "{}", different.join("\n"));
}

/// The header's macros that have a value. The type information has neither these nor the
/// enumerations, since no record has a field of such a type.
fn defines() -> BTreeMap<&'static str, u64> {
    let mut defines = BTreeMap::new();
    for line in HEADER.lines() {
        let words: Vec<&str> = line.split_whitespace().collect();
        // The include guard is a name without a value.
        if let ["#define", name, value, ..] = words[..] {
            defines.insert(name, number(value).expect("a macro is a number"));
        }
    }
    defines
}

/// The enumerators of one of the header's enumerations, with their values. One stands on a line.
fn enumerators(name: &str) -> Vec<(&'static str, u64)> {
    let (_, after) = HEADER
        .split_once(&format!("enum {name} {{\n"))
        .expect("the enumeration");
    let (body, _) = after.split_once("};").expect("the enumeration's end");
    let mut next = 0;
    let mut enumerators = Vec::new();
    for line in body.lines() {
        let (enumerator, _) = line.split_once(',').expect("an enumerator on each line");
        let (name, value) = match enumerator.split_once('=') {
            Some((name, value)) => (name, value_of(value.trim())),
            None => (enumerator, next),
        };
        enumerators.push((name.trim(), value));
        next = value + 1;
    }
    enumerators
}

/// The value of a number or of a macro.
fn value_of(text: &str) -> u64 {
    number(text).unwrap_or_else(|| defines()[text])
}

fn number(text: &str) -> Option<u64> {
    match text.strip_prefix("0x") {
        Some(digits) => u64::from_str_radix(digits, 16).ok(),
        None => text.parse().ok(),
    }
}

#[test]
fn constants_are_those_of_the_header() {
    let expected = [
        ("COMM_LEN", SpanRecord::default().comm.len() as u64),
        ("FLAG_FUNCTION", u64::from(flag::FUNCTION)),
        ("FLAG_KERNEL_THREAD", u64::from(flag::KERNEL_THREAD)),
        ("FLAG_MIGRATED", u64::from(flag::MIGRATED)),
        ("FLAG_REST", u64::from(flag::REST)),
        ("HISTOGRAM_BUCKETS", Histogram::BUCKETS as u64),
        ("MAX_CPUS", MAX_CPUS as u64),
        ("MAX_DEPTH", MAX_DEPTH as u64),
        ("RESTS_PER_CPU", RESTS_PER_CPU as u64),
        ("RUN_FOLLOW", run::FOLLOW),
        ("RUN_RECORD", run::RECORD),
        ("VECTOR", u64::from(vector::FIRST)),
    ];
    let mut defines = defines();
    for name in NOT_MIRRORED {
        assert!(
            defines.remove(name).is_some(),
            "{name} is not in the header"
        );
    }
    assert_eq!(defines, BTreeMap::from(expected));
}

#[test]
fn numbered_names_are_those_of_the_header() {
    let kinds = [
        ("KIND_IDLE", u64::from(kind::IDLE)),
        ("KIND_TASK", u64::from(kind::TASK)),
        ("KIND_SOFTIRQ", u64::from(kind::SOFTIRQ)),
        ("KIND_IRQ", u64::from(kind::IRQ)),
        ("KIND_NMI", u64::from(kind::NMI)),
        ("KIND_WAIT", u64::from(kind::WAIT)),
    ];
    assert_eq!(enumerators("kind"), kinds);

    let details = [
        ("DETAIL_NONE", detail::NONE),
        ("DETAIL_PAGE_FAULT", detail::PAGE_FAULT),
        ("DETAIL_THROTTLED", detail::THROTTLED),
        ("DETAIL_RECLAIM", detail::RECLAIM),
        ("DETAIL_WOKEN", detail::WOKEN),
        ("DETAIL_PREEMPTED", detail::PREEMPTED),
        ("DETAIL_SLEEPING", detail::SLEEPING),
        ("DETAIL_DISK", detail::DISK),
        ("DETAIL_LOCK", detail::LOCK),
        ("DETAIL_STOPPED", detail::STOPPED),
        ("DETAIL_UNSEEN", detail::UNSEEN),
        ("DETAIL_PARENT", detail::PARENT),
        ("DETAIL_REBORN", detail::REBORN),
        ("DETAIL_MISSED", detail::MISSED),
    ];
    assert_eq!(enumerators("detail"), details);

    let in_header: Vec<(String, u64)> = enumerators("vector")
        .into_iter()
        .map(|(name, number)| (vector_name(name), number))
        .collect();
    let first = u64::from(vector::FIRST);
    let in_rust: Vec<(String, u64)> = vector::NAMES
        .iter()
        .map(|&name| name.to_owned())
        .zip(first..)
        .collect();
    assert_eq!(in_rust, in_header);
}

/// What Rust calls the vector that the header calls by this name.
fn vector_name(in_header: &str) -> String {
    match in_header
        .strip_prefix("VECTOR_")
        .expect("the name of a vector")
    {
        // Of itself, `error` would not say whose.
        "ERROR" => "apic_error".to_owned(),
        name => name.to_lowercase(),
    }
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
