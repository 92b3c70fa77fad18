//! Finds the functions in an executable or a library, and unwinds a stack according to its tables.
//! Programs that are watched choose these files. The same bytes are also read as a perf map.

#![no_main]

use std::io::Cursor;

use libfuzzer_sys::fuzz_target;
use ticktax_symbols::{Caller, Registers, UnwindFile, functions_at, functions_in_map};

/// Size in bytes of the end of the input, which contains the offsets to look up.
const OFFSETS: usize = 32;

/// Address of the stack, whose words are the input.
const STACK: u64 = 0x7000;

fuzz_target!(|bytes: &[u8]| {
    let (file, numbers) = bytes.split_at(bytes.len().saturating_sub(OFFSETS));
    let offsets = numbers.chunks_exact(4).map(|bytes| {
        let number = bytes.try_into().map_or(0, u32::from_le_bytes);
        u64::from(number)
    });
    let offsets: Vec<u64> = offsets.collect();
    let open = || Cursor::new(file);
    // The file also counts as its own file with debug information.
    if let Ok(named) = functions_at(open(), &mut |_| vec![open()], &offsets, &mut || {}) {
        for places in named.functions {
            assert!(offsets.contains(&places.first) && offsets.contains(&places.last));
            assert!(!places.function.contains(char::is_control));
        }
    }
    if let Ok(Some(mut table)) = UnwindFile::read(open()) {
        let word = |address: u64| {
            let at = usize::try_from(address.checked_sub(STACK)?).ok()?;
            let bytes = bytes.get(at..at.checked_add(8)?)?;
            Some(u64::from_le_bytes(bytes.try_into().ok()?))
        };
        let mut registers = Registers::new([Some(STACK); 17]);
        for &offset in &offsets {
            if let Caller::Known(caller) = table.caller(offset, &registers, word) {
                // The caller's frame is further up.
                assert!(caller.stack_pointer() > registers.stack_pointer());
                registers = *caller;
            }
        }
    }
    let _ = std::hint::black_box(functions_in_map(file, &offsets, &mut || {}));
});
