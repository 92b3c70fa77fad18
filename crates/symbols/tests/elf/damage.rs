//! Damaged files: they may have no names, but must not cause a panic, an endless loop or a name
//! that is not theirs.

use std::io::Cursor;

use object::Endianness;
use proptest::prelude::*;
use proptest::sample::Index;
use ticktax_symbols::{SymbolError, functions_at};

use crate::make::{Contents, Symbol};

const OFFSETS: [u64; 6] = [0, 0x1000, 0x1100, 0x1110, 0x2000, u64::MAX];

fn read(bytes: &[u8], debug: &[u8]) -> Result<ticktax_symbols::Named, SymbolError> {
    let mut debug = |_: &_| vec![Cursor::new(debug)];
    functions_at(Cursor::new(bytes), &mut debug, &OFFSETS, &mut || {})
}

fn file(is_64_bit: bool, is_big_endian: bool, has_all: bool) -> Vec<u8> {
    let symbols = vec![
        Symbol::new("first", 0x40_1100, 0x10),
        Symbol::local("second", 0x40_1110, 0x1000),
        Symbol::new("_ZN5space3fooEibc", 0x40_2000, 1),
    ];
    let file = Contents {
        is_64_bit,
        endian: if is_big_endian {
            Endianness::Big
        } else {
            Endianness::Little
        },
        all: has_all.then(|| symbols.clone()),
        exported: Some(symbols),
        ..Contents::default()
    };
    file.bytes()
}

#[test]
fn other_files_are_refused() {
    for bytes in [
        &b""[..],
        b"\x7fEL",
        b"\x7fELF\x03",
        b"#!/bin/sh\n",
        &[0; 4_096],
    ] {
        let named = read(bytes, b"");
        assert!(matches!(named, Err(SymbolError::NotElf)), "{named:?}");
    }
}

#[test]
fn every_truncation_is_survived() {
    for is_64_bit in [false, true] {
        let bytes = file(is_64_bit, false, true);
        for length in 0..bytes.len() {
            // The section headers are at the end of the file.
            assert!(read(&bytes[..length], b"").is_err(), "{length}");
        }
        assert_eq!(read(&bytes, b"").unwrap().functions.len(), 3);
    }
}

#[test]
fn symbols_that_all_overlap_do_not_take_forever() {
    let symbols = vec![Symbol::new("f", 0x40_1000, 0x4000); 5_000];
    let bytes = Contents::with(&symbols).bytes();
    let offsets: Vec<u64> = (0x1000..0x5000).collect();
    let named = functions_at(
        Cursor::new(bytes),
        &mut |_| Vec::new(),
        &offsets,
        &mut || {},
    );
    assert!(
        matches!(named, Err(SymbolError::TooLarge { .. })),
        "{named:?}"
    );
}

/// A change to a file: the place, and the new bytes.
type Change = (Index, Vec<u8>);

fn changes() -> impl Strategy<Value = Vec<Change>> {
    let special = prop::sample::select(vec![0, 1, 0x7f, 0x80, 0xff]);
    let byte = prop_oneof![special, any::<u8>()];
    let change = (any::<Index>(), prop::collection::vec(byte, 1..9));
    prop::collection::vec(change, 1..6)
}

fn changed(mut bytes: Vec<u8>, changes: &[Change]) -> Vec<u8> {
    for (place, new) in changes {
        let place = place.index(bytes.len());
        for (old, &new) in bytes[place..].iter_mut().zip(new) {
            *old = new;
        }
    }
    bytes
}

proptest! {
    #[test]
    fn any_changed_file_can_be_read(
        is_64_bit: bool, is_big_endian: bool, has_all: bool,
        main in changes(), debug in changes(), cut: Index,
    ) {
        let whole = file(is_64_bit, is_big_endian, has_all);
        let debug = changed(file(is_64_bit, is_big_endian, true), &debug);
        let bytes = changed(whole.clone(), &main);
        for bytes in [&bytes[..], &bytes[..cut.index(bytes.len())], &whole] {
            if let Ok(named) = read(bytes, &debug) {
                let places = named.functions.iter().flat_map(|places| [places.first, places.last]);
                prop_assert!(places.into_iter().all(|place| OFFSETS.contains(&place)));
            }
        }
    }

    #[test]
    fn any_bytes_after_the_magic_number_can_be_read(
        class in 0..3_u8, order in 0..3_u8, rest in prop::collection::vec(any::<u8>(), 0..600),
    ) {
        let bytes = [&[0x7f, b'E', b'L', b'F', class, order, 1][..], &rest].concat();
        drop(read(&bytes, &bytes));
    }
}
