//! Tests with real output of other tools, and with damaged output.

use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};

use ticktax_model::comparison::{
    Better, Check, Comparison, Experiment, NoInterval, Scale, Unit, Verdict,
};

use super::{Distribution, Distributions, Values, detect};
use crate::numbers::{NumberFiles, NumbersError, Problem, Question};

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/distributions")
}

fn text(name: &str) -> String {
    fs::read_to_string(folder().join(name)).unwrap()
}

fn read(name: &str) -> Distributions {
    detect(&text(name)).expect(name).expect(name)
}

/// Returns the reason why a text is refused.
fn refused(text: &str) -> String {
    match detect(text).expect("a known tool") {
        Err(Problem::Content(why) | Problem::Choice(why)) => why,
        Ok(found) => panic!("{found:?}"),
    }
}

fn named<'a>(distributions: &'a Distributions, name: &str) -> &'a Distribution {
    let found = distributions.chosen(name);
    found.unwrap_or_else(|problem| panic!("{name}: {problem:?}"))
}

/// Returns the number of values, and the values at these ranks; -1 above all bins.
fn at(distribution: &Distribution, ranks: &[u64]) -> (u64, Vec<f64>) {
    let Values::Counted(histogram) = &distribution.values else {
        panic!("{distribution:?}");
    };
    let value = |rank: &u64| histogram.at(*rank).map_or(-1.0, |bin| bin.value);
    (histogram.count(), ranks.iter().map(value).collect())
}

fn names(all: &[Distribution]) -> Vec<&str> {
    all.iter().map(|distribution| &*distribution.name).collect()
}

fn question() -> Question {
    Question {
        difference: 0.05,
        ..Question::default()
    }
}

fn compare_paths(a: &Path, b: &Path, question: &Question) -> Result<Comparison, NumbersError> {
    let files = NumberFiles::open(a, b)?.expect("files of numbers");
    files.compare(question, "0")
}

fn compare(a: &str, b: &str, question: &Question) -> Result<Comparison, NumbersError> {
    compare_paths(&folder().join(a), &folder().join(b), question)
}

fn record(comparison: &Comparison) -> &ticktax_model::comparison::DistributionsRecord {
    let Experiment::Distributions(record) = &comparison.experiment else {
        panic!("{comparison:?}");
    };
    record
}

/// The ranks' values were counted by a separate script.
#[test]
fn cyclictest_text_and_json() {
    let ranks = [3_000, 5_400, 5_940, 5_994];
    let found = read("cyclictest.txt");
    assert_eq!(names(&found.main), ["all threads"]);
    assert_eq!(names(&found.others), ["thread 0", "thread 1"]);
    let all = at(&found.main[0], &ranks);
    assert_eq!(all, (6_000, vec![84e3, 90e3, 103e3, -1.0]));
    let one = at(named(&found, "thread 1"), &[1_500, 2_700, 2_970, 2_997]);
    assert_eq!(one, (3_000, vec![84e3, 88e3, 106e3, -1.0]));
    let found = read("cyclictest.json");
    let all = at(&found.main[0], &ranks);
    assert_eq!(all, (6_000, vec![83e3, 90e3, 121e3, -1.0]));
    let Values::Counted(histogram) = &found.main[0].values else {
        panic!("{found:?}");
    };
    assert_eq!(histogram.max(), Some(4_423e3));
    // 30 cycles are above the histogram.
    assert!(histogram.at(5_970).is_some() && histogram.at(5_971).is_none());
    let nanoseconds =
        text("cyclictest.json").replace("\"resolution_in_ns\": 0", "\"resolution_in_ns\": 1");
    let found = detect(&nanoseconds).unwrap().unwrap();
    assert_eq!(at(&found.main[0], &[3_000]).1, [83.0]);
    // With -H, the rows of several threads also have their sum.
    let with_sum = "# Histogram\n000001 000003\t000001\t000004\n# Total: 000000003 000000001 \
        000000004\n# Min Latencies: 00001 00001\n# Max Latencies: 00001 00001 00001\n";
    let found = detect(with_sum).unwrap().unwrap();
    assert_eq!(at(&found.main[0], &[4]), (4, vec![1e3]));
    assert_eq!(at(&read("cyclictest-H.txt").main[0], &[1]).0, 500);
}

#[test]
fn rtla_histograms() {
    let found = read("rtla-timerlat.txt");
    assert_eq!(found.kind, "rtla timerlat histogram");
    assert_eq!(names(&found.main), ["irq", "thread"]);
    assert_eq!(
        names(&found.others),
        ["IRQ-000", "Thr-000", "IRQ-001", "Thr-001"]
    );
    let thread = at(&found.main[1], &[1, 17_996, 17_997, 19_998, 19_999]);
    assert_eq!(thread, (20_000, vec![1e3, 1e3, 2e3, 255e3, -1.0]));
    let found = read("rtla-osnoise.txt");
    assert_eq!(
        at(&found.main[0], &[942, 943, 1_522]),
        (1_522, vec![0.0, 1e3, 5e3])
    );
    let nanoseconds = text("rtla-osnoise.txt").replace("microseconds (us)", "nanoseconds (ns)");
    let found = detect(&nanoseconds).unwrap().unwrap();
    assert_eq!(at(&found.main[0], &[1_522]).1, [5.0]);
}

/// The percentiles are those that fio itself computed from its bins.
#[test]
fn fio_json() {
    let found = read("fio-plus.json");
    assert_eq!(names(&found.main), ["read clat", "write clat"]);
    let read_clat = at(&found.main[0], &[1_000, 1_800, 1_980]);
    assert_eq!(read_clat, (2_000, vec![112_128.0, 134_144.0, 207_872.0]));
    let write_clat = at(&found.main[1], &[1_001, 1_801, 1_981]);
    assert_eq!(write_clat, (2_001, vec![8_640.0, 14_016.0, 20_864.0]));
    let Values::Counted(histogram) = &found.main[0].values else {
        panic!("{found:?}");
    };
    assert_eq!(histogram.max(), Some(4_949_795.0));
    let bin = histogram.at(1_000).unwrap();
    assert_eq!((bin.low, bin.high), (111_616.0, 112_640.0));
    assert!(
        histogram
            .bins()
            .windows(2)
            .all(|bins| bins[0].high <= bins[1].low)
    );
    let found = read("fio-both.txt");
    assert_eq!(names(&found.main), ["read clat", "read lat"]);
    let found = read("fio.json");
    let Values::Percentiles(percentiles) = &found.main[0].values else {
        panic!("{found:?}");
    };
    let p99 = percentiles.iter().find(|one| one.name == "p99").unwrap();
    assert!((p99.value - 193_536.0).abs() < 1e-9);
    assert_eq!(percentiles.last().unwrap().name, "max");
}

#[test]
fn fio_logs_are_known_by_their_names() {
    let comparison = compare("fio_clat.1.log", "fio_clat.1.log", &question()).unwrap();
    assert_eq!(
        comparison.arms[0].setting("format"),
        Some("fio latency log")
    );
    let ids: Vec<&str> = comparison
        .metrics
        .iter()
        .map(|metric| &*metric.id)
        .collect();
    assert_eq!(ids[..2], ["read p50", "read p90"]);
    assert_eq!(comparison.metrics[0].unit, Unit::Ns);
    let value = |id: &str| comparison.arms[0].value(comparison.metric(id).unwrap());
    assert_eq!(value("read p50"), Some(118_527.0));
    assert_eq!(value("read p99"), Some(173_669.0));
    assert_eq!(value("write p90"), Some(12_759.0));
    assert_eq!(value("write max"), Some(19_318.0));
    let counts = &record(&comparison).compared;
    assert_eq!(counts[0].counts, [Some(300), Some(300)]);
    let folder = tempfile::TempDir::new().unwrap();
    for (name, unit, better) in [
        ("job_bw.1.log", Unit::None, Better::Higher),
        ("job_iops.log", Unit::None, Better::Higher),
        ("log", Unit::None, Better::Unknown),
    ] {
        let path = folder.path().join(name);
        fs::write(&path, "0, 23, 1, 131072\n877, 14011, 1, 131072\n").unwrap();
        let comparison = compare_paths(&path, &path, &question()).unwrap();
        let metric = &comparison.metrics[0];
        assert_eq!((metric.unit, metric.better), (unit, better), "{name}");
    }
}

/// The values are those of the Python library that wrote the files.
#[test]
fn hdr_histograms_of_another_library() {
    let found = read("python.hlog");
    assert_eq!(names(&found.main), ["untagged", "write"]);
    let untagged = at(&found.main[0], &[3_000, 5_400, 5_940, 5_994, 6_000]);
    assert_eq!(untagged, (6_000, vec![147.0, 275.0, 461.0, 736.0, 926.0]));
    assert_eq!(at(&found.main[1], &[1]).0, 1_000);
    let found = read("python.hgrm");
    let (count, values) = at(&found.main[0], &[1, 6_000]);
    assert_eq!((count, &*values), (6_000, &[23.0, 926.0][..]));
    let Values::Counted(histogram) = &found.main[0].values else {
        panic!("{found:?}");
    };
    let bin = histogram.at(3_000).unwrap();
    assert!(bin.low <= 147.0 && bin.high >= 147.0, "{bin:?}");
    // The table of wrk2 is the same, in ms.
    let wrk2 = read("wrk2.txt");
    assert_eq!(wrk2.kind, "wrk2 output");
    assert_eq!(names(&wrk2.main), ["recorded latency"]);
    assert_eq!(at(&wrk2.main[0], &[1, 6_000]), (6_000, vec![23e6, 926e6]));
}

#[test]
fn summaries_have_percentiles_without_intervals() {
    let comparison = compare("wrk.txt", "wrk.txt", &question()).unwrap();
    let ids: Vec<&str> = comparison
        .metrics
        .iter()
        .map(|metric| &*metric.id)
        .collect();
    assert_eq!(ids, ["p50", "p75", "p90", "p99", "max"]);
    assert_eq!(comparison.arms[0].value(3), Some(8.24e6));
    assert_eq!(comparison.arms[0].value(4), Some(13.87e6));
    assert!(comparison.effects.is_empty());
    let reason = record(&comparison).without_interval[0].reason;
    assert_eq!(reason, NoInterval::PercentilesOnly { arm: 0 });
    let comparison = compare("k6-export.json", "k6-summary.json", &question()).unwrap();
    let ids: Vec<&str> = comparison
        .metrics
        .iter()
        .map(|metric| &*metric.id)
        .collect();
    assert_eq!(ids, ["p50", "p90", "p95", "max"]);
    assert_eq!(comparison.arms[1].value(2), Some(149.9e6));
    let comparison = compare("k6.txt", "k6-export.json", &question()).unwrap();
    let values = [0, 1, 2, 3].map(|metric| {
        let value = |arm: usize| comparison.arms[arm].value(metric).unwrap();
        (value(0), value(1))
    });
    assert!(
        values.iter().all(|(a, b)| (a - b).abs() < 1.0),
        "{values:?}"
    );
    let chosen = Question {
        results: vec!["queue_length".to_owned()],
        ..question()
    };
    let comparison = compare("k6.txt", "k6-summary.json", &chosen).unwrap();
    let metric = &comparison.metrics[0];
    assert_eq!((metric.unit, metric.better), (Unit::None, Better::Unknown));
}

/// Writes a histogram as cyclictest does.
fn cyclictest(counts: &[(u64, u64)]) -> String {
    let mut text = "# Histogram\n".to_owned();
    let (mut total, mut max) = (0, 0);
    for (latency, count) in counts {
        let _ = writeln!(text, "{latency:06} {count:06}");
        total += count;
        max = max.max(*latency);
    }
    let _ = write!(
        text,
        "# Total: {total:09}\n# Min Latencies: 00001\n# Avg Latencies: 00001\n\
         # Max Latencies: {max:05}\n# Histogram Overflows: 00000\n"
    );
    text
}

fn compare_texts(a: &str, b: &str, question: &Question) -> Comparison {
    let folder = tempfile::TempDir::new().unwrap();
    let [a, b] = [("a", a), ("b", b)].map(|(name, text)| {
        let path = folder.path().join(name);
        fs::write(&path, text).unwrap();
        path
    });
    compare_paths(&a, &b, question).unwrap()
}

#[test]
fn a_known_shift_is_found_and_its_size_is_in_the_interval() {
    // B is A with 10 µs added to each of 10,000 values around 100 µs.
    let bell = |shift: u64| -> Vec<(u64, u64)> {
        (0..41)
            .map(|step: u64| {
                let distance = step.abs_diff(20);
                (80 + step + shift, 10_000 * (21 - distance) / 441)
            })
            .collect()
    };
    let comparison = compare_texts(&cyclictest(&bell(0)), &cyclictest(&bell(10)), &question());
    let effect = &comparison.effects[0];
    assert_eq!(effect.scale, Scale::Relative);
    let found = effect.contrast.effect.unwrap();
    assert!((found.value - 0.1).abs() < 1e-9, "{found:?}");
    assert!(found.low > 0.08 && found.high < 0.12, "{found:?}");
    assert_eq!(effect.contrast.verdict, Verdict::Worse);
    assert!(effect.contrast.chance.unwrap() < 1e-6);
    let confidence = comparison.arms[0].figure(0).unwrap().confidence.unwrap();
    assert!(
        confidence.0 <= 100e3 && confidence.1 >= 101e3,
        "{confidence:?}"
    );
    // The maximum is shown, but not judged.
    assert_eq!(comparison.arms[1].value(4), Some(130e3));
    assert!(comparison.effects.iter().all(|effect| effect.metric != 4));
    let same = compare_texts(&cyclictest(&bell(0)), &cyclictest(&bell(0)), &question());
    let verdict = same.effects[0].contrast.verdict;
    let Verdict::NoDifferenceBeyond { bound } = verdict else {
        panic!("{verdict:?}");
    };
    // The bins are 1 µs wide, so that less than 1 % cannot be ruled out.
    assert!((0.009..0.03).contains(&bound), "{bound}");
    let faster = Question {
        better: Some(Better::Higher),
        ..question()
    };
    let comparison = compare_texts(&cyclictest(&bell(0)), &cyclictest(&bell(10)), &faster);
    assert_eq!(comparison.effects[0].contrast.verdict, Verdict::Better);
}

#[test]
fn bins_that_are_too_wide_leave_the_verdict_open() {
    let a = [(4, 1_000), (5, 90_000), (6, 9_000)];
    let b = [(4, 2_000), (5, 88_000), (6, 10_000)];
    let comparison = compare_texts(&cyclictest(&a), &cyclictest(&b), &question());
    let median = &comparison.effects[0];
    let verdict = median.contrast.verdict;
    assert!(matches!(verdict, Verdict::CannotTell { .. }), "{verdict:?}");
    let [Check::Rounded { error }] = &*median.checks else {
        panic!("{median:?}");
    };
    assert!((error - 1e3).abs() < 1.0, "{error}");
    // Two values in neighbouring bins can be equal.
    let a = [(5, 100_000)];
    let b = [(6, 100_000)];
    let comparison = compare_texts(&cyclictest(&a), &cyclictest(&b), &question());
    let effect = &comparison.effects[0];
    assert!(effect.contrast.effect.unwrap().low <= 1e-12, "{effect:?}");
    assert!(!effect.contrast.verdict.differs());
    // Values in the first bin can be 0, which has no ratio.
    let a = [(0, 100_000)];
    let b = [(9, 100_000)];
    let comparison = compare_texts(&cyclictest(&a), &cyclictest(&b), &question());
    let effect = &comparison.effects[0];
    assert_eq!(effect.scale, Scale::Absolute);
    let found = effect.contrast.effect.unwrap();
    assert_eq!((found.value, found.low, found.high), (9e3, 8e3, 10e3));
}

#[test]
fn reasons_for_missing_intervals() {
    let reasons = |comparison: &Comparison| -> Vec<(usize, NoInterval)> {
        let all = record(comparison).without_interval.iter();
        all.map(|without| (without.metric, without.reason))
            .collect()
    };
    let few: Vec<(u64, u64)> = (100..200).map(|latency| (latency, 1)).collect();
    let comparison = compare_texts(&cyclictest(&few), &cyclictest(&few), &question());
    let too_few = |need: u64| NoInterval::TooFew {
        arm: 0,
        have: 100,
        need,
    };
    let expected = [
        (2, too_few(368)),
        (3, too_few(3_688)),
        (4, NoInterval::Maximum),
    ];
    assert_eq!(reasons(&comparison), expected);
    let comparison = compare("cyclictest.txt", "cyclictest.json", &question()).unwrap();
    let out_of_range = (3, NoInterval::OutOfRange { arm: 0 });
    assert_eq!(reasons(&comparison)[0], out_of_range);
    assert_eq!(comparison.arms[0].value(3), None);
    assert_eq!(comparison.arms[0].value(4), Some(3_850e3));
}

#[test]
fn distributions_are_chosen_by_name_or_number() {
    let with = |results: &[&str]| Question {
        results: results.iter().map(|&result| result.to_owned()).collect(),
        ..question()
    };
    let two = with(&["thread 0", "3"]);
    let comparison = compare("cyclictest.txt", "cyclictest.txt", &two).unwrap();
    assert_eq!(comparison.arms[0].setting("name"), Some("thread 0"));
    assert_eq!(comparison.arms[1].setting("name"), Some("thread 1"));
    let comparison = compare("fio-plus.json", "fio-both.txt", &question()).unwrap();
    assert_eq!(comparison.metrics[0].id, "p50");
    assert_eq!(comparison.arms[1].setting("name"), Some("read clat"));
    assert_eq!(record(&comparison).compared.len(), 1);
    let error = compare("fio-plus.json", "fio-both.txt", &with(&["9"])).unwrap_err();
    let error = error.to_string();
    assert!(
        error.contains("no result `9`; choose from 1 read clat, 2 write clat"),
        "{error}"
    );
    let error = compare("rtla-timerlat.txt", "cyclictest.txt", &question()).unwrap_err();
    assert!(
        error
            .to_string()
            .contains("choose a result with --result N"),
        "{error}"
    );
    let mixed = with(&["thread", "1"]);
    assert!(compare("rtla-timerlat.txt", "cyclictest.txt", &mixed).is_ok());
    let error = compare("python.hlog", "wrk2.txt", &with(&["1"])).unwrap_err();
    assert!(matches!(error, NumbersError::Units { .. }), "{error}");
}

#[test]
fn files_of_the_wrong_kind_name_their_kind() {
    for (name, why) in [
        ("cyclictest-plain.txt", "cyclictest without a histogram"),
        (
            "wrk-plain.txt",
            "wrk without a latency distribution; run wrk with --latency",
        ),
    ] {
        let found = refused(&text(name));
        assert!(
            found.contains(why) && !found.contains('\n'),
            "{name}: {found}"
        );
    }
    let fio = text("fio-both.txt");
    let only_text = &fio[fio.find("\nseq: (groupid").unwrap()..];
    assert!(refused(only_text).contains("fio's text output"));
    let timerlat = "                                     Timer Latency\n  0 00:00:01   |\n";
    assert!(refused(timerlat).contains("rtla top"));
    let wrk = folder().join("wrk.txt");
    let folder = tempfile::TempDir::new().unwrap();
    let numbers = folder.path().join("numbers.txt");
    fs::write(&numbers, "1\n2\n3\n4\n").unwrap();
    for (a, b) in [(&numbers, &wrk), (&wrk, &numbers)] {
        let error = compare_paths(a, b, &question()).unwrap_err().to_string();
        assert!(
            error.contains("(a list of numbers)") && error.contains("(wrk output)"),
            "{error}"
        );
    }
    let recording = folder.path().join("recording");
    fs::write(&recording, "PAR1").unwrap();
    let error = compare_paths(&wrk, &recording, &question())
        .unwrap_err()
        .to_string();
    assert!(error.contains("a recording, trace or statement"), "{error}");
}

/// Every file is cut at each line and at some bytes, and loses each of its first lines. The reader
/// must refuse it in one line or find as many values as its own counts say.
#[test]
fn damaged_files_are_refused_or_read() {
    let mut refusals = 0;
    for entry in fs::read_dir(folder()).unwrap() {
        let path = entry.unwrap().path();
        let whole = fs::read_to_string(&path).unwrap();
        let ends = whole.match_indices('\n').map(|(at, _)| at);
        let ends = ends.chain((0..whole.len()).step_by(97));
        for end in ends.filter(|&end| whole.is_char_boundary(end)) {
            for part in [&whole[..end], &whole[end..]] {
                if let Some(Err(Problem::Content(why) | Problem::Choice(why))) = detect(part) {
                    assert!(!why.contains('\n'), "{why}");
                    refusals += 1;
                }
            }
        }
    }
    assert!(refusals > 100, "{refusals}");
    for (name, row) in [
        ("cyclictest.txt", "000084 "),
        ("rtla-timerlat.txt", "2            74"),
        ("fio-plus.json", "            \"112128\""),
    ] {
        let whole = text(name);
        let kept: Vec<&str> = whole
            .lines()
            .filter(|line| !line.starts_with(row))
            .collect();
        assert!(kept.len() < whole.lines().count(), "{name}");
        let why = refused(&kept.join("\n"));
        assert!(
            why.contains("missing") || why.contains("but N is"),
            "{name}: {why}"
        );
    }
}

/// Bytes of every file are changed, removed and repeated at random. The files must be compared or
/// refused in one line.
#[test]
fn changed_files_are_compared_or_refused() {
    const CHANGES: [&[u8]; 8] = [
        b"9",
        b"0",
        b"-",
        b"{",
        b",",
        b" ",
        b"\n",
        b"18446744073709551615",
    ];
    let mut state = 7_u64;
    let mut random = |below: usize| {
        // Knuth's constants for a linear congruential generator.
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        usize::try_from(state >> 33).unwrap() % below.max(1)
    };
    let scratch = tempfile::TempDir::new().unwrap();
    let (mut compared, mut refusals) = (0, 0);
    for entry in fs::read_dir(folder()).unwrap() {
        let path = entry.unwrap().path();
        let whole = fs::read(&path).unwrap();
        let copy = scratch.path().join(path.file_name().unwrap());
        for _ in 0..60 {
            let mut bytes = whole.clone();
            for _ in 0..=random(4) {
                let at = random(bytes.len());
                let end = (at + random(40)).min(bytes.len());
                match random(4) {
                    0 => drop(bytes.drain(at..end)),
                    1 => {
                        let part = bytes[at..end].to_vec();
                        bytes.splice(at..at, part);
                    }
                    _ => {
                        let change = CHANGES[random(CHANGES.len())];
                        bytes.splice(at..(at + 1).min(bytes.len()), change.iter().copied());
                    }
                }
            }
            fs::write(&copy, bytes).unwrap();
            match NumberFiles::open(&copy, &copy).transpose() {
                Some(Ok(files)) if files.compare(&question(), "0").is_ok() => compared += 1,
                Some(Err(error)) => {
                    assert!(!error.to_string().contains('\n'), "{error}");
                    refusals += 1;
                }
                _ => refusals += 1,
            }
        }
    }
    assert!(compared > 100 && refusals > 100, "{compared} {refusals}");
}

/// A payload states its own length, so a short file could make the library reserve gigabytes.
#[test]
fn lengths_in_a_log_are_checked() {
    use base64::Engine as _;
    let encode = |inner: &[u8]| {
        let squeezed = miniz_oxide::deflate::compress_to_vec_zlib(inner, 6);
        let mut bytes = vec![0x1c, 0x84, 0x93, 0x14];
        bytes.extend(u32::try_from(squeezed.len()).unwrap().to_be_bytes());
        bytes.extend(squeezed);
        let payload = base64::engine::general_purpose::STANDARD.encode(bytes);
        format!("#[Histogram log format version 1.3]\n0.0,1.0,1.0,{payload}\n")
    };
    let header = |length: u32| {
        let mut bytes = vec![0x1c, 0x84, 0x93, 0x13];
        bytes.extend(length.to_be_bytes());
        bytes.extend(0_u32.to_be_bytes());
        bytes.extend(3_u32.to_be_bytes());
        bytes.extend(1_u64.to_be_bytes());
        bytes.extend(3_600_000_000_u64.to_be_bytes());
        bytes.extend(1.0_f64.to_be_bytes());
        bytes
    };
    assert!(refused(&encode(&header(u32::MAX))).contains("damaged"));
    assert!(refused(&encode(&header(1))).contains("damaged"));
    let lowest = [header(9), vec![0xff; 9]].concat();
    assert!(refused(&encode(&lowest)).contains("damaged"));
    let bomb = [header(0), vec![0; 70 << 20]].concat();
    assert!(refused(&encode(&bomb)).contains("damaged"));
    assert!(refused(&encode(&[0; 3])).contains("damaged"));
    // Two values of 1: the counts 0 and 2, as zigzag numbers.
    let valid = [header(2), vec![0, 4]].concat();
    let found = detect(&encode(&valid)).unwrap().unwrap();
    assert_eq!(at(&found.main[0], &[1, 2]), (2, vec![1.0, 1.0]));
}
