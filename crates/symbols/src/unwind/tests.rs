use std::io::Cursor;

use proptest::prelude::*;

use super::{Caller, Registers, UnwindFile};

/// Address at which the file's only segment is loaded.
const BASE: u64 = 0x40_0000;
/// Offset of the function that the tables describe, and its length.
const FUNCTION: u64 = 0x300;
const LENGTH: u32 = 0x40;
/// Offsets of the table and of its search table.
const FRAMES: usize = 0x100;
const SEARCH: usize = 0x200;

/// Rules of a function that saves `rbp`: its first instruction pushes it, and its next one makes
/// room for 16 bytes.
const RULES: [u8; 9] = [0x41, 0x0e, 16, 0x86, 2, 0x41, 0x0e, 32, 0];

/// Returns a file with one function, whose entry contains the given rules.
fn file(rules: &[u8]) -> Vec<u8> {
    let mut file = vec![0; 0x400];
    file[..7].copy_from_slice(b"\x7fELF\x02\x01\x01");
    let mut put = |at: usize, bytes: &[u8]| file[at..at + bytes.len()].copy_from_slice(bytes);
    put(16, &2_u16.to_le_bytes());
    put(18, &62_u16.to_le_bytes());
    put(20, &1_u32.to_le_bytes());
    put(32, &64_u64.to_le_bytes());
    put(52, &64_u16.to_le_bytes());
    put(54, &56_u16.to_le_bytes());
    put(56, &2_u16.to_le_bytes());
    put(58, &64_u16.to_le_bytes());
    let mut segment = |nth: usize, kind: u32, offset: u64, size: u64| {
        let at = 64 + nth * 56;
        put(at, &kind.to_le_bytes());
        put(at + 4, &5_u32.to_le_bytes());
        for (word, value) in [offset, BASE + offset, BASE + offset, size, size, 8]
            .iter()
            .enumerate()
        {
            put(at + 8 + word * 8, &value.to_le_bytes());
        }
    };
    segment(0, 1, 0, 0x400);
    segment(1, 0x6474_e550, SEARCH as u64, 20);
    // The common part: the return address is at the top of the frame.
    let common = [
        1, b'z', b'R', 0, 1, 0x78, 16, 1, 0x1b, 0x0c, 7, 8, 0x90, 1, 0, 0,
    ];
    put(FRAMES, &20_u32.to_le_bytes());
    put(FRAMES + 8, &common);
    let entry = FRAMES + 24;
    let length = 13 + rules.len();
    put(entry, &u32::try_from(length).unwrap().to_le_bytes());
    put(
        entry + 4,
        &u32::try_from(entry + 4 - FRAMES).unwrap().to_le_bytes(),
    );
    let distance = i32::try_from(FUNCTION).unwrap() - i32::try_from(entry + 8).unwrap();
    put(entry + 8, &distance.to_le_bytes());
    put(entry + 12, &LENGTH.to_le_bytes());
    put(entry + 17, rules);
    let search = i32::try_from(SEARCH).unwrap();
    put(SEARCH, &[1, 0x1b, 0x03, 0x3b]);
    put(SEARCH + 8, &1_u32.to_le_bytes());
    let function = i32::try_from(FUNCTION).unwrap();
    put(SEARCH + 12, &(function - search).to_le_bytes());
    put(
        SEARCH + 16,
        &(i32::try_from(entry).unwrap() - search).to_le_bytes(),
    );
    file
}

/// Returns the caller's instruction pointer, stack pointer and `rbp`, for a stack at 0x7000 whose
/// words are their own addresses.
fn caller(file: Vec<u8>, offset: u64) -> Result<[Option<u64>; 3], Caller> {
    let mut values = [None; 17];
    (values[6], values[7], values[16]) = (Some(1), Some(0x7000), Some(2));
    let registers = Registers::new(values);
    let word = |address| (0x7000..0x8000).contains(&address).then_some(address);
    let mut file = UnwindFile::read(Cursor::new(file)).unwrap().unwrap();
    let first = file.caller(offset, &registers, word);
    // The second time, the rules are known.
    assert_eq!(file.caller(offset, &registers, word), first);
    match first {
        Caller::Known(caller) => Ok([
            caller.instruction_pointer(),
            caller.stack_pointer(),
            caller.get(6),
        ]),
        other => Err(other),
    }
}

#[test]
fn the_rules_depend_on_the_instruction() {
    let at = |offset| caller(file(&RULES), FUNCTION + offset);
    assert_eq!(at(0), Ok([Some(0x7000), Some(0x7008), Some(1)]));
    assert_eq!(at(1), Ok([Some(0x7008), Some(0x7010), Some(0x7000)]));
    assert_eq!(at(2), Ok([Some(0x7018), Some(0x7020), Some(0x7010)]));
}

#[test]
fn code_without_an_entry_has_no_known_caller() {
    let at = |offset| caller(file(&RULES), offset);
    assert_eq!(at(FUNCTION + u64::from(LENGTH)), Err(Caller::Unknown));
    assert_eq!(at(FUNCTION - 1), Err(Caller::Unknown));
    assert_eq!(at(0x10_0000), Err(Caller::Unknown));
}

#[test]
fn the_first_function_of_a_thread_has_no_caller() {
    // The return address is undefined.
    assert_eq!(caller(file(&[0x07, 16]), FUNCTION), Err(Caller::None));
}

#[test]
fn a_frame_below_the_stack_pointer_is_refused() {
    // The frame ends at the stack pointer, and on an unknown register.
    assert_eq!(caller(file(&[0x0e, 0]), FUNCTION), Err(Caller::Unknown));
    assert_eq!(caller(file(&[0x0c, 10, 8]), FUNCTION), Err(Caller::Unknown));
    // The place of the return address is an expression.
    assert_eq!(
        caller(file(&[0x10, 16, 1, 0x30]), FUNCTION),
        Err(Caller::Unknown)
    );
}

#[test]
fn other_files_have_no_table() {
    let read = |bytes: &[u8]| UnwindFile::read(Cursor::new(bytes.to_vec()));
    assert!(read(b"#!/bin/sh").is_err());
    let without = |at: usize, byte: u8| {
        let mut file = file(&RULES);
        file[at] = byte;
        read(&file).unwrap().is_none()
    };
    // 32-bit, arm64, no search table, and an unknown encoding.
    assert!(without(4, 1));
    assert!(without(18, 183));
    assert!(without(64 + 56, 7));
    assert!(without(SEARCH + 3, 0x1b));
}

proptest! {
    #[test]
    fn damaged_files_are_read_without_a_crash(
        changes in prop::collection::vec((0_usize..0x400, any::<u8>()), 1..20),
        offset in 0_u64..0x400,
    ) {
        let mut file = file(&RULES);
        for (at, byte) in changes {
            file[at] = byte;
        }
        if let Ok(Some(mut file)) = UnwindFile::read(Cursor::new(file)) {
            let registers = Registers::new([Some(0x7000); 17]);
            let _ = file.caller(offset, &registers, |_| Some(0x7000));
        }
    }
}
