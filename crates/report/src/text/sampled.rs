//! Words for the code in which samples found a culprit.

use ticktax_model::kernel_walk::SampledWalk;
use ticktax_model::sampled_code::{SampledCode, SampledPlace, SampledSource};
use ticktax_model::victim::ThreadTimes;

use super::numbers::{counted, displayed, grouped};
use super::page::{Page, Tone, tied};

/// Describes where the samples found a culprit, or returns `None` if they found nothing that has a
/// name.
pub(super) fn in_words(code: &SampledCode) -> Option<String> {
    let places = places(code)?;
    let walk = code
        .walk
        .as_ref()
        .and_then(|walk| walk_in_words(walk, code));
    Some(places + &walk.unwrap_or_default())
}

/// Describes the list that the code walks, if its length is known.
fn walk_in_words(walk: &SampledWalk, code: &SampledCode) -> Option<String> {
    let objects = tied(format!("{} {}", grouped(walk.objects?), walk.list));
    let mut places = code.places.iter();
    let subject = if places.any(|place| place.function == walk.function) {
        String::new()
    } else {
        format!("{} ", walk.function)
    };
    let each = walk.per_object.map_or_else(String::new, |each| {
        format!(", at least {} each", tied(each))
    });
    Some(format!(": {subject}walks up to {objects}{each}"))
}

fn places(code: &SampledCode) -> Option<String> {
    let named = |place: &SampledPlace| {
        let file = place.file.as_ref();
        let file = file.map_or_else(String::new, |file| format!(" of {}", displayed(file)));
        let caller = place.called_from.as_ref();
        let caller = caller.map_or_else(String::new, |caller| format!(" <- {caller}"));
        format!("{}{file}{caller}", displayed(&place.function))
    };
    match &*code.places {
        [] => None,
        [only] if code.samples == 1 => Some(format!("in {} {}", named(only), tied("(1 sample)"))),
        [first, rest @ ..] => {
            let all = counted(code.samples, "sample");
            let share = tied(format!("({} of {all})", grouped(first.samples)));
            let mut words = vec![format!("in {} {share}", named(first))];
            words.extend(rest.iter().map(|place| {
                let share = tied(format!("({})", grouped(place.samples)));
                format!("{} {share}", named(place))
            }));
            Some(words.join(" or "))
        }
    }
}

/// Writes the code of the culprit that a program waited behind longest.
pub(super) fn of_main_culprit(page: &mut Page, threads: &ThreadTimes) {
    let mut culprits = threads.behind.iter();
    let code = culprits.find_map(|culprit| {
        let words = in_words(culprit.code.as_ref()?)?;
        Some((&culprit.name, culprit.pid, words))
    });
    if let Some((name, pid, words)) = code {
        write(page, name, pid, &words);
    }
}

/// Writes the code of up to `most` sources on the machine.
pub(super) fn of_machine(page: &mut Page, sampled: &[SampledSource], most: usize) {
    let coded = sampled
        .iter()
        .filter_map(|source| Some((source, in_words(&source.code)?)));
    for (source, words) in coded.take(most) {
        write(page, &source.name, source.pid, &words);
    }
}

fn write(page: &mut Page, name: &str, pid: Option<i32>, words: &str) {
    let name = displayed(name);
    let pid = pid.map_or_else(String::new, |pid| format!(" ({pid})"));
    page.paragraph(Tone::Faint, &format!("  {name}{pid}: "), words);
}

#[cfg(test)]
mod tests {
    use ticktax_model::Nanos;
    use ticktax_model::kernel_walk::{KernelList, SampledWalk};
    use ticktax_model::sampled_code::{SampledCode, SampledPlace};

    use super::{grouped, in_words};
    use crate::text::page::TIE;

    fn words(samples: u64, places: &[(&str, &str, u64)]) -> Option<String> {
        let places = places
            .iter()
            .map(|&(function, caller, samples)| SampledPlace {
                function: function.to_owned(),
                file: None,
                called_from: (!caller.is_empty()).then(|| caller.to_owned()),
                is_kernel: true,
                samples,
            });
        let code = SampledCode {
            samples,
            places: places.collect(),
            walk: None,
        };
        Some(in_words(&code)?.replace(TIE, " "))
    }

    #[test]
    fn the_share_of_the_samples_is_always_given() {
        assert_eq!(words(3, &[]), None);
        assert_eq!(
            words(1, &[("f", "", 1)]).as_deref(),
            Some("in f (1 sample)")
        );
        let agreed = [("ext4_writepages", "wb_workfn", 12)];
        let expected = "in ext4_writepages <- wb_workfn (12 of 14 samples)";
        assert_eq!(words(14, &agreed).as_deref(), Some(expected));
        let place = SampledPlace {
            function: "update".to_owned(),
            file: Some("gamesrv".to_owned()),
            samples: 7,
            ..SampledPlace::default()
        };
        let code = SampledCode {
            samples: 9,
            places: vec![place],
            walk: None,
        };
        let expected = "in update of gamesrv (7 of 9 samples)";
        assert_eq!(in_words(&code).unwrap().replace(TIE, " "), expected);
        let walk = |function: &str, per_object| SampledCode {
            walk: Some(SampledWalk {
                function: function.to_owned(),
                list: KernelList::Dentries,
                samples: 8,
                objects: Some(410_212),
                longest: None,
                per_object,
            }),
            ..code.clone()
        };
        let objects = grouped(410_212).replace(TIE, " ");
        let described = |code: &SampledCode| in_words(code).unwrap().replace(TIE, " ");
        assert_eq!(
            described(&walk("update", Some(Nanos(84)))),
            format!("{expected}: walks up to {objects} dentries, at least 84 ns each")
        );
        assert_eq!(
            described(&walk("d_walk", None)),
            format!("{expected}: d_walk walks up to {objects} dentries")
        );
        let split = [("f", "g", 5), ("h", "", 4)];
        let expected = "in f <- g (5 of 12 samples) or h (4)";
        assert_eq!(words(12, &split).as_deref(), Some(expected));
    }
}
