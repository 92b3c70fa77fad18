use std::path::Path;

use ticktax_model::limitation::{FunctionsUnnamed, Limitation};
use ticktax_model::recording::Stack;

use super::{CodeFiles, FileKey, MOST_FILES, MOST_OFFSETS};
use crate::code_names::Code;
use crate::user_code::UserCode;

fn inode(number: u64) -> FileKey {
    FileKey::Inode("fd:00".to_owned(), number)
}

fn add(files: &mut CodeFiles, key: u64, name: &str, offset: u64) -> String {
    let code = files.sampled(inode(key), name, 7, offset, |_| Code::Unreadable);
    code.to_string()
}

#[test]
fn files_of_the_same_name_are_told_apart() {
    let mut files = CodeFiles::new(Path::new("/nonexistent"));
    assert_eq!(add(&mut files, 1, "game", 16), "game;game+0x10");
    assert_eq!(add(&mut files, 2, "game", 16), "game (2);game (2)+0x10");
    assert_eq!(
        add(&mut files, 3, "game (2)", 1),
        "game (2) (2);game (2) (2)+0x1"
    );
    assert_eq!(add(&mut files, 1, "game", 17), "game;game+0x11");
    let named = files.named(|| ());
    let names = named.files.iter().map(|file| &*file.name);
    assert_eq!(
        names.collect::<Vec<_>>(),
        ["game", "game (2)", "game (2) (2)"]
    );
}

#[test]
fn a_file_is_opened_in_another_process_if_the_first_one_has_exited() {
    let mut files = CodeFiles::new(Path::new("/nonexistent"));
    let mut tried = Vec::new();
    for process in [7, 7, 8, 9] {
        files.sampled(inode(1), "game", process, 16, |_| {
            tried.push(process);
            match process {
                7 => Code::Unreadable,
                _ => Code::Image(Vec::new()),
            }
        });
    }
    assert_eq!(tried, [7, 8]);
}

#[test]
fn the_reason_is_given_with_the_files_that_have_most_samples() {
    let mut files = CodeFiles::new(Path::new("/nonexistent"));
    for (key, samples) in [(1, 1), (2, 5), (3, 2), (4, 3), (5, 1)] {
        for _ in 0..samples {
            add(&mut files, key, &format!("lib{key}"), 0);
        }
    }
    let named = files.named(|| ());
    let expected = Limitation::FunctionsUnnamed {
        samples: 12,
        files: ["lib2", "lib4", "lib3"].map(str::to_owned).to_vec(),
        files_left_out: 2,
        reason: FunctionsUnnamed::Unreadable,
    };
    assert_eq!(named.limitations, [expected]);
}

#[test]
fn files_and_offsets_without_room_have_no_offset() {
    let mut files = CodeFiles::new(Path::new("/nonexistent"));
    let most = MOST_FILES as u64;
    for key in 0..most + 3 {
        let code = add(&mut files, key, "game", 16);
        assert_eq!(code.contains("+0x10"), key < most, "{code}");
    }
    assert_eq!(add(&mut files, most, "game", 16), "game");
    for offset in 0..MOST_OFFSETS as u64 {
        add(&mut files, 0, "game", offset);
    }
    assert_eq!(add(&mut files, 0, "game", 1 << 40), "game");
    assert_eq!(add(&mut files, 0, "game", 1), "game;game+0x1");
    let named = files.named(|| ());
    assert_eq!(named.files.len(), MOST_FILES);
    let too_many = named
        .limitations
        .iter()
        .find_map(|limitation| match limitation {
            Limitation::FunctionsUnnamed {
                samples, reason, ..
            } => (*reason == FunctionsUnnamed::TooMany).then_some(*samples),
            _ => None,
        });
    // Four samples in files without room, and as many offsets as there are other files.
    assert_eq!(too_many, Some(4 + most));
}

#[test]
fn the_own_function_and_that_of_the_kernel_are_named() {
    let mut code = UserCode::new(Path::new("/proc"));
    let own = std::process::id();
    let address = the_own_function_and_that_of_the_kernel_are_named as fn() as usize as u64;
    let stack = code.at(own, [0; 16], address);
    let [file, place] = stack.frames() else {
        panic!("{stack}");
    };
    let offset = place.offset_in(&file.name).unwrap();
    // Every byte of the kernel's code in this process.
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
    let kernel = maps.lines().find(|line| line.ends_with("[vdso]")).unwrap();
    let (begin, end) = kernel.split_once(' ').unwrap().0.split_once('-').unwrap();
    let number = |text| u64::from_str_radix(text, 16).unwrap();
    for address in number(begin)..number(end) {
        let stack = code.at(own, [0; 16], address);
        assert_eq!(stack.frames()[0].name, "[vdso]");
    }
    let named = code.take_files().named(|| ());
    let [own, kernel] = &*named.files else {
        panic!("{named:?}");
    };
    let function = own.function(offset);
    let expected = "the_own_function_and_that_of_the_kernel_are_named";
    assert!(
        function.is_some_and(|name| name.ends_with(expected)),
        "{function:?}"
    );
    let names: Vec<&str> = kernel
        .functions
        .iter()
        .map(|function| &*function.name)
        .collect();
    assert!(
        names.iter().any(|name| name.contains("clock_gettime")),
        "{names:?}"
    );
    let named_stack = stack.with_function(|_, offset| own.function(offset));
    assert_ne!(named_stack, Stack::default());
    assert!(named_stack.frames()[1].name.ends_with(expected));
}

#[test]
fn processes_share_the_kernels_code_even_after_their_exit() {
    let mut files = CodeFiles::new(Path::new("/nonexistent"));
    let kernel = |is_32_bit| FileKey::Kernel {
        name: "[vdso]".to_owned(),
        length: 0x2000,
        is_32_bit,
    };
    let mut add = |process, is_32_bit, code: fn() -> Code| {
        let code = files.sampled(kernel(is_32_bit), "[vdso]", process, 16, |_| code());
        code.to_string()
    };
    let exited = || Code::Unreadable;
    let image = || Code::Image(vec![0]);
    let known: fn() -> Code = || panic!("the code has already been copied");
    assert_eq!(add(7, false, exited), "[vdso];[vdso]+0x10");
    assert_eq!(add(7, false, known), "[vdso];[vdso]+0x10");
    assert_eq!(add(8, false, image), "[vdso];[vdso]+0x10");
    assert_eq!(add(9, false, known), "[vdso];[vdso]+0x10");
    assert_eq!(add(9, true, image), "[vdso] (2);[vdso] (2)+0x10");
    assert!(matches!(files.files[0].code, Code::Image(_)));
    assert_eq!(files.files.len(), 2);
}
