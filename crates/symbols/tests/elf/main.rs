//! Names of functions in ELF files that were written for these tests, and in damaged ones.

#![expect(clippy::unwrap_used, reason = "a test may panic")]

mod damage;
mod make;

use std::io::Cursor;

use object::Endianness;
use object::elf::{EM_ARM, PF_R, PF_W, STB_LOCAL, STB_WEAK, STT_GNU_IFUNC, STT_NOTYPE, STT_OBJECT};
use ticktax_symbols::{Named, functions_at};

use make::{Contents, Segment, Symbol};

/// Looks up offsets in a file. `debug` are the files with debug information that exist.
fn find(file: &Contents, debug: &[Contents], offsets: &[u64]) -> Named {
    let mut debug = |_: &_| debug.iter().map(|file| Cursor::new(file.bytes())).collect();
    functions_at(Cursor::new(file.bytes()), &mut debug, offsets, &mut || {}).unwrap()
}

fn name_at(file: &Contents, offset: u64) -> Option<String> {
    let mut functions = find(file, &[], &[offset]).functions;
    assert!(functions.len() <= 1);
    functions.pop().map(|places| places.function)
}

/// Asserts that each offset has this name. An empty name stands for none.
fn assert_names(file: &Contents, names: &[(u64, &str)]) {
    for &(offset, name) in names {
        let found = name_at(file, offset);
        assert_eq!(found.as_deref().unwrap_or_default(), name, "{offset:#x}");
    }
}

#[test]
fn a_symbol_covers_its_size() {
    let file = Contents::with(&[
        Symbol::new("_ZN5space3fooEibc", 0x40_1100, 0x20),
        Symbol::local("_ZN4core3fmt5write17h0123456789abcdefE", 0x40_1120, 0x10),
    ]);
    let names = [
        (0x10ff, ""),
        (0x1100, "space::foo"),
        (0x111f, "space::foo"),
        (0x1120, "core::fmt::write"),
        (0x112f, "core::fmt::write"),
        (0x1130, ""),
        (0x100, ""),
        (0xffff_ffff_ffff_ffff, ""),
    ];
    assert_names(&file, &names);
    let all = find(&file, &[], &[0x1120, 0x1100, 0x111f, 0x1130, 0x1100]);
    assert!(all.has_all);
    assert_eq!(all.build_id.unwrap().to_string(), "ab".repeat(20));
    let ranges = all
        .functions
        .iter()
        .map(|f| (f.first, f.last, &*f.function));
    let expected = [
        (0x1100, 0x111f, "space::foo"),
        (0x1120, 0x1120, "core::fmt::write"),
    ];
    assert_eq!(ranges.collect::<Vec<_>>(), expected);
}

#[test]
fn all_classes_and_byte_orders_are_read() {
    for is_64_bit in [false, true] {
        for endian in [Endianness::Little, Endianness::Big] {
            let file = Contents {
                is_64_bit,
                endian,
                ..Contents::with(&[Symbol::new("update", 0x40_1100, 0x20)])
            };
            assert_names(&file, &[(0x1100, "update"), (0x1120, "")]);
            assert!(find(&file, &[], &[]).build_id.is_some());
        }
    }
}

#[test]
fn a_symbol_without_a_size_covers_nothing() {
    let file = Contents::with(&[
        Symbol::new("assembly", 0x40_1100, 0),
        Symbol::new("next", 0x40_1140, 0x10),
    ]);
    assert_names(&file, &[(0x1100, ""), (0x1110, ""), (0x1140, "next")]);
}

#[test]
fn only_functions_that_are_defined_here_have_names() {
    let function = Symbol::new("f", 0x40_1100, 0x20);
    for (symbol, name) in [
        (
            Symbol {
                kind: STT_GNU_IFUNC,
                ..function
            },
            Some("f"),
        ),
        (
            Symbol {
                kind: STT_OBJECT,
                ..function
            },
            None,
        ),
        (
            Symbol {
                kind: STT_NOTYPE,
                ..function
            },
            None,
        ),
        (
            Symbol {
                is_defined: false,
                ..function
            },
            None,
        ),
        (
            Symbol {
                name: "",
                ..function
            },
            None,
        ),
    ] {
        let found = name_at(&Contents::with(&[symbol]), 0x1110);
        assert_eq!(found.as_deref(), name, "{symbol:?}");
    }
}

#[test]
fn the_innermost_and_best_known_symbol_is_chosen() {
    let inner = Symbol::new("inner", 0x40_1110, 0x10);
    let outer = Symbol::new("outer", 0x40_1100, 0x100);
    let weak = Symbol {
        name: "weak",
        binding: STB_WEAK,
        ..outer
    };
    let local = Symbol {
        name: "local",
        binding: STB_LOCAL,
        ..outer
    };
    let mut symbols = [local, inner, weak, outer];
    for _ in 0..symbols.len() {
        symbols.rotate_left(1);
        let file = Contents::with(&symbols);
        let names = [(0x1100, "outer"), (0x1110, "inner"), (0x1120, "outer")];
        assert_names(&file, &names);
        let functions = find(&file, &[], &[0x1100, 0x1110, 0x1120]).functions;
        assert_eq!(functions.len(), 3);
    }
}

#[test]
fn each_segment_has_its_own_distance() {
    let data = Segment {
        flags: PF_R | PF_W,
        ..Segment::code(0x3000, 0x50_0000, 0x1000)
    };
    let segments = [
        Segment::code(0x1000, 0x40_1000, 0x1000),
        Segment::code(0x2000, 0x60_0000, 0x1000),
        data,
    ];
    let file = Contents {
        segments: segments.to_vec(),
        ..Contents::with(&[
            Symbol::new("first", 0x40_1100, 0x20),
            Symbol::new("second", 0x60_0100, 0x20),
            Symbol::new("data", 0x50_0100, 0x20),
            Symbol::new("across", 0x40_1f00, 0x10_0000),
        ])
    };
    let names = [
        (0x1100, "first"),
        (0x2100, "second"),
        (0x3100, ""),
        (0x1f80, ""),
    ];
    assert_names(&file, &names);
    // An offset that is mapped to two addresses has no name, even if both are named.
    let twice = Contents {
        segments: [segments[0], Segment::code(0x1000, 0x60_0000, 0x1000)].to_vec(),
        ..file
    };
    assert_names(&twice, &[(0x1100, "")]);
}

#[test]
fn the_lowest_bit_of_an_arm_address_is_the_instruction_set() {
    let symbol = Symbol::new("thumb", 0x40_1101, 0x10);
    let file = Contents {
        is_64_bit: false,
        machine: EM_ARM,
        ..Contents::with(&[symbol])
    };
    assert_names(
        &file,
        &[
            (0x10ff, ""),
            (0x1100, "thumb"),
            (0x110f, "thumb"),
            (0x1110, ""),
        ],
    );
    assert_names(&Contents::with(&[symbol]), &[(0x1100, "")]);
}

fn stripped() -> Contents {
    Contents {
        exported: Some(vec![Symbol::new("memcpy", 0x40_1100, 0x20)]),
        ..Contents::default()
    }
}

#[test]
fn a_stripped_file_has_the_names_that_it_exports() {
    assert_names(&stripped(), &[(0x1100, "memcpy"), (0x1120, "")]);
    let named = find(&stripped(), &[], &[0x1100]);
    assert!(!named.has_all);
    let bare = Contents {
        exported: None,
        build_id: None,
        ..stripped()
    };
    let named = find(&bare, &[], &[0x1100]);
    assert_eq!(named, Named::default());
}

#[test]
fn compressed_symbols_add_to_the_exported_ones() {
    let hidden = [
        Symbol::local("copy_tail", 0x40_1120, 0x20),
        Symbol::local("copy_head", 0x40_10e0, 0x20),
    ];
    let file = stripped().with_embedded(&hidden);
    let names = [
        (0x10e0, "copy_head"),
        (0x1100, "memcpy"),
        (0x1130, "copy_tail"),
        (0x1140, ""),
    ];
    assert_names(&file, &names);
    let named = find(&file, &[], &[0x1130, 0x1100, 0x10e0]);
    assert!(named.has_all);
    let functions = named.functions.iter().map(|places| &*places.function);
    let functions: Vec<_> = functions.collect();
    assert_eq!(functions, ["copy_head", "memcpy", "copy_tail"]);
    // A separate file has more information.
    let symbols = [Symbol::new("from_elsewhere", 0x40_1100, 0x40)];
    let named = find(&file, &[Contents::with(&symbols)], &[0x1130]);
    assert_eq!(named.functions[0].function, "from_elsewhere");
    let damaged = Contents {
        embedded: Some(b"\xfd7zXZ\0".to_vec()),
        ..stripped()
    };
    assert_names(&damaged, &names[1..2]);
    assert!(!find(&damaged, &[], &[]).has_all);
}

#[test]
fn debug_information_must_be_of_the_same_build() {
    let symbols = [
        Symbol::new("memcpy", 0x40_1100, 0x20),
        Symbol::local("copy_tail", 0x40_1120, 0x20),
    ];
    let right = Contents::with(&symbols);
    let wrong_symbols = [Symbol::new("wrong", 0x40_1100, 0x40)];
    let wrong = Contents {
        build_id: Some(vec![1; 20]),
        ..Contents::with(&wrong_symbols)
    };
    let unknown = Contents {
        build_id: None,
        ..wrong.clone()
    };
    let names = |debug: &[Contents]| {
        let named = find(&stripped(), debug, &[0x1110, 0x1120]);
        let names = named.functions.into_iter().map(|places| places.function);
        (named.has_all, names.collect::<Vec<_>>())
    };
    let (all, exported) = (vec!["memcpy", "copy_tail"], vec!["memcpy"]);
    let owned = |names: Vec<&str>| names.into_iter().map(str::to_owned).collect::<Vec<_>>();
    assert_eq!(
        names(std::slice::from_ref(&right)),
        (true, owned(all.clone()))
    );
    assert_eq!(
        names(&[wrong.clone(), unknown.clone()]),
        (false, owned(exported.clone()))
    );
    assert_eq!(
        names(&[wrong, unknown, stripped(), right.clone()]),
        (true, owned(all))
    );
    // Without a build ID, nothing shows that two files belong together.
    let unnamed = Contents {
        build_id: None,
        ..stripped()
    };
    let unnamed_right = Contents {
        build_id: None,
        ..right
    };
    let named = find(&unnamed, &[unnamed_right], &[0x1110, 0x1120]);
    assert_eq!((named.has_all, named.functions.len()), (false, 1));
}

#[test]
fn debug_files_are_found_by_build_id() {
    let named = find(&stripped(), &[], &[]);
    let path = named.build_id.unwrap().debug_path();
    assert_eq!(path, format!(".build-id/ab/{}.debug", "ab".repeat(19)));
    for length in [0, 1, 65, 4_000] {
        let file = Contents {
            build_id: Some(vec![7; length]),
            ..stripped()
        };
        assert_eq!(find(&file, &[], &[]).build_id, None, "{length}");
    }
}

#[test]
fn this_program_finds_itself() {
    let path = std::env::current_exe().unwrap();
    let file = std::fs::File::open(path).unwrap();
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
    let address = this_program_finds_itself as fn() as usize as u64;
    let offset = maps.lines().find_map(|line| {
        let mut words = line.split_ascii_whitespace();
        let (begin, end) = words.next()?.split_once('-')?;
        let number = |text| u64::from_str_radix(text, 16).ok();
        let (begin, end, offset) = (number(begin)?, number(end)?, number(words.nth(1)?)?);
        (begin..end)
            .contains(&address)
            .then(|| address - begin + offset)
    });
    let mut chunks = 0;
    let named = functions_at(file, &mut |_| Vec::new(), &[offset.unwrap()], &mut || {
        chunks += 1;
    });
    let named = named.unwrap();
    assert!(named.has_all && chunks > 1, "{named:?}, {chunks}");
    assert_eq!(
        named.functions[0].function,
        "elf::this_program_finds_itself"
    );
}
