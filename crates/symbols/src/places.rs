//! Places in a file, and the functions found for them.

/// Consecutive places that belong to the same function.
///
/// Functions can overlap or contain others, so the places between `first` and `last` are only those
/// that the search was asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NamedPlaces {
    /// First of the places: an offset in the file, or an address in generated code.
    pub first: u64,
    /// Last of the places.
    pub last: u64,
    /// Name of the function, ready to be printed.
    pub function: String,
}

/// Combines places that have the same name and no other place between them. `named` is sorted by
/// place; a place without a name separates its neighbours.
pub(crate) fn combined(named: impl Iterator<Item = (u64, Option<String>)>) -> Vec<NamedPlaces> {
    let mut all: Vec<NamedPlaces> = Vec::new();
    let mut is_adjacent = false;
    for (place, function) in named {
        let Some(function) = function else {
            is_adjacent = false;
            continue;
        };
        match all.last_mut() {
            Some(before) if is_adjacent && before.function == function => before.last = place,
            _ => all.push(NamedPlaces {
                first: place,
                last: place,
                function,
            }),
        }
        is_adjacent = true;
    }
    all
}

#[cfg(test)]
mod tests {
    use super::{NamedPlaces, combined};

    #[test]
    fn an_unnamed_place_is_in_no_range() {
        let named = [
            (1, Some("a")),
            (2, Some("a")),
            (3, None),
            (4, Some("a")),
            (5, Some("b")),
            (6, Some("a")),
        ];
        let named = named.map(|(place, name)| (place, name.map(str::to_owned)));
        let places = |first, last, function: &str| NamedPlaces {
            first,
            last,
            function: function.to_owned(),
        };
        assert_eq!(
            combined(named.into_iter()),
            [
                places(1, 2, "a"),
                places(4, 4, "a"),
                places(5, 5, "b"),
                places(6, 6, "a"),
            ]
        );
    }
}
