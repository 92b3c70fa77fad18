//! Checks that `docs/reference/data.md` describes the columns of a file.

use crate::recording::schema;

const PAGE: &str = include_str!("../../../../../docs/reference/data.md");

/// Returns the first three cells of each row in the documentation's table of columns: the name, the
/// type, and whether the column can be null.
fn documented() -> Vec<(String, String, bool)> {
    let rows = PAGE
        .lines()
        .skip_while(|line| !line.starts_with("| column |"));
    let rows = rows.skip(2).take_while(|line| line.starts_with('|'));
    let row = |line: &str| {
        let cells: Vec<&str> = line.split('|').map(str::trim).collect();
        let name = cells[1].trim_matches('`').to_owned();
        (name, cells[2].to_owned(), cells[3] != "never")
    };
    rows.map(row).collect()
}

#[test]
fn the_documentation_lists_the_columns_in_order() {
    use parquet::basic::Type as Physical;
    let message = schema::message().unwrap();
    let columns: Vec<(String, String, bool)> = message
        .get_fields()
        .iter()
        .map(|field| {
            let info = field.get_basic_info();
            let is_text = info.name() != schema::HISTOGRAM;
            let kind = match field.get_physical_type() {
                Physical::INT32 => "int32",
                Physical::INT64 => "int64",
                Physical::BYTE_ARRAY if is_text => "text",
                _ => "bytes",
            };
            let optional = info.repetition() == parquet::basic::Repetition::OPTIONAL;
            (field.name().to_owned(), kind.to_owned(), optional)
        })
        .collect();
    assert_eq!(documented(), columns);
}

#[test]
fn the_documentation_names_every_kind_and_owner() {
    for kind in ticktax_model::Kind::ALL {
        let cell = format!("`{}`", kind.name());
        assert!(PAGE.contains(&cell), "{cell}");
    }
    for owner in ticktax_model::Owner::ALL {
        let cell = format!("`{}`", owner.name());
        assert!(PAGE.contains(&cell), "{cell}");
    }
}
