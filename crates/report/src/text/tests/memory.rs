//! Tests for pages about memory.

use ticktax_model::mem::{
    CheckBasis, CheckedWalk, Latency, LatencyPoint, LevelFit, MemLatency, MemLevel, MemLimitation,
    MemObjects, MemWalk, ObjectGroup, ObjectLimitation, ObjectSource, PageBacking, Prefetch, Touch,
    WalkCheck, WalkCost, WalkKind, WalkTime,
};
use ticktax_model::{Cpu, Nanos};

use super::page;

/// Returns a measurement of a machine with an L1 of 32 KiB and an L2 that is not flat.
pub(crate) fn measured() -> MemLatency {
    let latency = |ns: f64| Latency {
        median_ns: ns,
        min_ns: ns * 0.99,
        p90_ns: ns * 1.02,
    };
    let point = |kibibytes: u64, huge: f64, small: f64| LatencyPoint {
        size_bytes: kibibytes << 10,
        huge: Some(latency(huge)),
        small: latency(small),
        next_line_ns: huge / 2.0,
        read_ns_per_byte: huge / 100.0,
    };
    let level = |name: &str, reported, found, latency_ns, spread| MemLevel {
        name: name.to_owned(),
        reported_bytes: reported,
        found_bytes: found,
        ways: Some(8),
        latency_ns,
        spread,
        points: 6,
    };
    MemLatency {
        cpu: Cpu(3),
        line_bytes: 64,
        huge_pages: PageBacking::Transparent { share: 0.96 },
        repetitions: 31,
        points: vec![
            point(16, 1.0, 1.01),
            point(19, 1.0, 1.01),
            point(1024, 9.5, 12.25),
            point(65_536, 101.0, 140.0),
        ],
        levels: vec![
            level("L1", Some(32 << 10), Some(27 << 10), 1.0, 0.01),
            level("L2", Some(1 << 20), None, 9.5, 0.4),
            level("memory", None, None, 101.0, 0.05),
        ],
        prefetch: Some(Prefetch {
            after_lines: 6,
            before_lines: 4,
            fetch_bytes: 128,
        }),
        limitations: vec![
            MemLimitation::NoHugePages,
            MemLimitation::NoCacheSizes,
            MemLimitation::TooSmall {
                size_bytes: 64 << 20,
            },
            MemLimitation::Disturbed { share: 0.5 },
        ],
    }
}

#[test]
fn page_of_latencies() {
    insta::assert_snapshot!(page(measured()));
}

#[test]
fn a_measurement_without_points_has_a_page() {
    let empty = MemLatency {
        points: Vec::new(),
        levels: Vec::new(),
        limitations: Vec::new(),
        ..measured()
    };
    assert!(page(empty).starts_with("CPU 3: latency of caches and memory\n"));
}

/// Returns a predicted walk that was not checked.
pub(crate) fn predicted() -> MemWalk {
    let touch = |field: &str, offset_bytes, is_first| Touch {
        field: field.to_owned(),
        offset_bytes,
        size_bytes: 8,
        line: offset_bytes / 64,
        is_first,
    };
    let cost = |item_ns: f64, lines: u64| WalkCost {
        working_set_bytes: 64_000 * 64 * lines,
        item_ns,
        stall: Nanos::from_micros(5_000),
    };
    MemWalk {
        structure: "vnode".to_owned(),
        size_bytes: 240,
        holes: 2,
        hole_bytes: 12,
        line_bytes: 64,
        touches: vec![
            touch("v_nmntvnodes.next", 0x90, true),
            touch("v_type", 0x1c, true),
            touch("v_iflag", 0x24, false),
        ],
        items: 64_000,
        lines: 2,
        packed_lines: 1,
        fits: vec![LevelFit {
            level: "L2".to_owned(),
            size_bytes: 1 << 20,
            items: 8192,
            packed_items: 16_384,
        }],
        interleaved: cost(86.25, 2),
        sequential: cost(60.5, 2),
        packed: cost(45.0, 1),
        every: Some(Nanos::from_secs(31)),
        prefetch: None,
        curve: Vec::new(),
        check: None,
    }
}

#[test]
fn page_of_a_walk() {
    insta::assert_snapshot!(page(predicted()));
}

/// Returns a check of a walk whose packed variant takes `packed_ns` instead of 45 ns.
pub(crate) fn check(packed_ns: f64, basis: CheckBasis, huge_pages: PageBacking) -> WalkCheck {
    let around = |ns: f64| Latency {
        median_ns: ns,
        min_ns: ns * 0.9,
        p90_ns: ns * 1.1,
    };
    let row = |kind, predicted_ns, ns| CheckedWalk {
        kind,
        predicted_ns,
        measured: around(ns),
    };
    WalkCheck {
        cpu: Cpu(3),
        basis,
        rounds: 31,
        huge_pages,
        tolerance: WalkCheck::TOLERANCE,
        walks: vec![
            row(WalkKind::InOrder, 86.25, 90.0),
            row(WalkKind::ByAddress, 60.5, 55.0),
            row(WalkKind::Packed, 45.0, packed_ns),
        ],
        overlapping: around(48.0),
        sorted_objects: around(12.0),
    }
}

#[test]
fn page_of_a_walk_that_fits() {
    let walk = MemWalk {
        check: Some(check(47.0, CheckBasis::SameRun, PageBacking::Reserved)),
        ..predicted()
    };
    insta::assert_snapshot!(page(walk));
}

#[test]
fn a_walk_that_does_not_fit_is_rejected_in_words() {
    let walk = MemWalk {
        check: Some(check(57.0, CheckBasis::Table, PageBacking::Small)),
        ..predicted()
    };
    let text = page(walk).replace('\n', " ");
    assert!(text.contains("The model does not fit (fields moved together): the median"));
    assert!(text.contains("which uses the latencies in the file. Use the measured time instead."));
    assert!(text.contains("The kernel provided no huge pages for the objects"));
}

/// Returns the objects of a machine with a budget of 16.7 ms.
fn objects() -> MemObjects {
    let walk = |lines, micros| WalkTime {
        lines,
        working_set_bytes: 64_000 * 64 * lines,
        median: Nanos::from_micros(micros),
        min: Nanos::from_micros(micros / 2),
        p90: Nanos::from_micros(micros * 2),
    };
    let group = |name: &str, source, fields: &[&str], lines, micros| ObjectGroup {
        name: name.to_owned(),
        source,
        objects: 64_000,
        size_bytes: Some(616),
        fields: fields.iter().map(|&field| field.to_owned()).collect(),
        walk: walk(lines, micros),
        every_line: Some(walk(10, micros * 4)),
    };
    MemObjects {
        cpu: Cpu(3),
        line_bytes: 64,
        groups: vec![
            group(
                "inodes",
                ObjectSource::InodeState,
                &["i_state", "i_mapping"],
                2,
                20_000,
            ),
            group("buffer_head", ObjectSource::Slabinfo, &[], 1, 9_000),
            group("kmalloc-8", ObjectSource::Slabinfo, &[], 1, 9),
        ],
        budget: Some(Nanos::from_micros(16_700)),
        limitations: vec![ObjectLimitation::NoCount {
            source: ObjectSource::Loadavg,
        }],
    }
}

#[test]
fn page_of_objects() {
    insta::assert_snapshot!(page(objects()));
}

#[test]
fn a_page_of_objects_names_a_walk_over_the_budget_as_possible_only() {
    let text = page(objects()).replace('\n', " ");
    assert!(text.contains("1 predicted walk (marked !) would exceed the budget of 16.7 ms if"));
    assert!(text.contains("ticktax did not look for walks."));
    let within = MemObjects {
        budget: Some(Nanos::from_millis(21)),
        ..objects()
    };
    let text = page(within);
    assert!(text.contains("No predicted walk takes longer than the budget of 21.0 ms."));
    assert!(!text.contains('!'), "{text}");
}

#[test]
fn objects_that_cannot_be_read_are_named_with_the_remedy() {
    let unread = MemObjects {
        groups: Vec::new(),
        budget: None,
        limitations: vec![
            ObjectLimitation::SlabinfoNeedsRoot,
            ObjectLimitation::NoTypes,
            ObjectLimitation::NoSlabinfo,
        ],
        ..objects()
    };
    let text = page(unread);
    let text: Vec<&str> = text.split_whitespace().collect();
    let text = text.join(" ");
    assert!(text.contains("The kernel's objects could not be counted."));
    assert!(text.contains("Only root may read /proc/slabinfo"));
    assert!(text.contains("touch one line per object"));
}
