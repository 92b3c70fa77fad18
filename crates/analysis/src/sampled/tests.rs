use ticktax_model::kernel_walk::KernelList;
use ticktax_model::recording::{CodeFile, CodeFunction, Stack};
use ticktax_model::{Kind, Nanos, Source, SourceTable};

use super::{FunctionNames, Samples, code_of};

/// Returns the places of samples with these stacks, as function, caller and number of samples.
fn places(stacks: &[&str]) -> Vec<(String, Option<String>, u64)> {
    let stacks: Vec<Stack> = stacks.iter().map(|text| Stack::from_folded(text)).collect();
    let frames: Vec<_> = stacks.iter().map(Stack::frames).collect();
    let code = code_of(&frames).unwrap();
    assert_eq!(code.samples, stacks.len() as u64);
    let places = code.places.into_iter();
    let shown = places.map(|place| (place.function, place.called_from, place.samples));
    shown.collect()
}

fn place(function: &str, caller: &str, samples: u64) -> (String, Option<String>, u64) {
    let caller = (!caller.is_empty()).then(|| caller.to_owned());
    (function.to_owned(), caller, samples)
}

#[test]
fn the_innermost_function_that_most_samples_share_is_found() {
    let stacks = [
        "munmap_[k];unmap_region_[k];zap_pte_range_[k];free_page_[k]",
        "munmap_[k];unmap_region_[k];zap_pte_range_[k];clear_[k]",
        "munmap_[k];unmap_region_[k];zap_pte_range_[k]",
        "munmap_[k];unmap_region_[k];free_pgtables_[k]",
        "read_[k];vfs_read_[k]",
    ];
    assert_eq!(places(&stacks), [place("zap_pte_range", "munmap", 3)]);
}

#[test]
fn a_single_sample_names_its_innermost_function() {
    assert_eq!(places(&["a_[k];b_[k];c_[k]"]), [place("c", "a", 1)]);
    assert_eq!(places(&["a_[k]"]), [place("a", "", 1)]);
}

#[test]
fn without_agreement_the_two_commonest_are_named() {
    let stacks = [
        "a_[k];x_[k]",
        "a_[k];x_[k]",
        "b_[k];y_[k]",
        "c_[k]",
        "b_[k];z_[k]",
    ];
    assert_eq!(places(&stacks), [place("x", "a", 2), place("b", "", 2)]);
}

#[test]
fn tracing_programs_are_not_the_culprits_code() {
    let tracing = Stack::tracing().to_string();
    let stacks = [&*tracing, "vfork_[k];copy_process_[k]", &*tracing].map(Stack::from_folded);
    let frames: Vec<_> = stacks.iter().map(Stack::frames).collect();
    let code = code_of(&frames).unwrap();
    assert_eq!(code.samples, 1);
    assert_eq!(code.places[0].function, "copy_process");
    assert_eq!(code_of(&frames[..1]), None);
}

#[test]
fn exactly_half_is_not_most() {
    assert_eq!(places(&["a_[k]", "b_[k]"]).len(), 2);
    assert_eq!(places(&["a_[k];b_[k]", "a_[k];c_[k]"]), [place("a", "", 2)]);
}

#[test]
fn unknown_stacks_count_against_agreement() {
    assert_eq!(places(&["", "", ""]), []);
    assert_eq!(places(&["a_[k];b_[k]", "", ""]), [place("b", "a", 1)]);
    assert_eq!(places(&["a_[k]", "a_[k]", ""]), [place("a", "", 2)]);
}

#[test]
fn offsets_in_a_file_do_not_hide_the_file() {
    let stacks = ["game;game+0x10", "game;game+0x20", "game;game+0x30"];
    assert_eq!(places(&stacks), [place("game", "", 3)]);
    assert_eq!(places(&stacks[..1]), [place("game+0x10", "", 1)]);
    let mixed = ["game;game+0x10", "game;game+0x10", "game_[k]"];
    assert_eq!(places(&mixed), [place("game+0x10", "", 2)]);
}

#[test]
fn functions_in_user_mode_have_the_names_in_the_header() {
    let mut sources = SourceTable::default();
    let source = sources.intern(Source::kernel(Kind::Task, "game", ""));
    let mut samples = Samples::default();
    for code in [
        "game;game+0x10",
        "game;game+0x18",
        "game;game+0x90",
        "libc;libc+0x10",
    ] {
        samples.add(Nanos(1), source, &code.into());
    }
    let update = CodeFunction {
        name: "update".to_owned(),
        first_offset: 0x10,
        last_offset: 0x18,
    };
    let game = CodeFile {
        name: "game".to_owned(),
        functions: vec![update],
        ..CodeFile::default()
    };
    let places = |samples: &Samples| {
        let places = samples.by_source(&sources).remove(0).code.places;
        let shown = places.into_iter();
        let shown = shown.map(|place| (place.function, place.file, place.samples));
        shown.collect::<Vec<_>>()
    };
    let samples = samples.named(&FunctionNames::new(&[]));
    assert_eq!(places(&samples), [("game".to_owned(), None, 3)]);
    let mut samples = samples.named(&FunctionNames::new(std::slice::from_ref(&game)));
    // Two of four samples are not most, but two of three are.
    assert_eq!(places(&samples), [("game".to_owned(), None, 3)]);
    samples.all.pop();
    let file = Some("game".to_owned());
    assert_eq!(places(&samples), [("update".to_owned(), file, 2)]);
}

#[test]
fn only_the_selected_samples_count() {
    let mut sources = SourceTable::default();
    let one = sources.intern(Source::kernel(Kind::Softirq, "NET_RX", ""));
    let other = sources.intern(Source::kernel(Kind::Softirq, "TIMER", ""));
    let mut samples = Samples::default();
    for (at, source, code) in [(10, one, "f_[k]"), (20, one, "g_[k]"), (20, other, "h_[k]")] {
        samples.add(Nanos(at), source, &code.into());
    }
    let code = samples
        .code(|id| id == one, |_, at| at > Nanos(15))
        .unwrap();
    assert_eq!((code.samples, &*code.places[0].function), (1, "g"));
    assert_eq!(samples.code(|id| id == one, |_, at| at > Nanos(25)), None);
}

#[test]
fn a_walk_is_found_if_most_stacks_contain_it() {
    let walk = |stacks: &[&str]| {
        let stacks: Vec<Stack> = stacks.iter().map(|text| Stack::from_folded(text)).collect();
        let frames: Vec<_> = stacks.iter().map(Stack::frames).collect();
        let walk = code_of(&frames).unwrap().walk?;
        assert_eq!(walk.list, KernelList::Inodes);
        Some((walk.function, walk.samples))
    };
    let stacks = [
        "write_[k];iterate_supers_[k];drop_pagecache_sb_[k];iput_[k]",
        "write_[k];iterate_supers_[k];drop_pagecache_sb_[k]",
        "write_[k];vfs_write_[k]",
        "drop_pagecache_sb",
    ];
    let found = Some(("drop_pagecache_sb".to_owned(), 2));
    assert_eq!(walk(&stacks[..3]), found);
    // A function in user mode with the same name does not count.
    assert_eq!(walk(&stacks), None);
    assert_eq!(walk(&stacks[2..]), None);
}
