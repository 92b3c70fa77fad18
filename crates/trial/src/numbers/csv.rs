//! Reads one column of a CSV or TSV table.

use csv::{Position, Reader, ReaderBuilder, StringRecord, Trim};

use super::{MAX_VALUES, NumberList, Problem, listed, number, place};

/// Reads the chosen column or, if none was chosen, the only column of numbers. The first line is a
/// header if any of its fields is not a number.
pub(super) fn read(text: &str, delimiter: u8, chosen: Option<&str>) -> Result<NumberList, Problem> {
    let table = Table { text, delimiter };
    let mut first = StringRecord::new();
    if !table.reader().read_record(&mut first).map_err(broken)? {
        return Ok(NumberList::plain(Vec::new(), None));
    }
    let has_names = !first.iter().all(is_number);
    let names: Vec<String> = if has_names {
        first.iter().map(str::to_owned).collect()
    } else {
        let places = 1..=first.len();
        places.map(|place| format!("column {place}")).collect()
    };
    let column = match chosen {
        Some(chosen) => place(chosen, &names).ok_or_else(|| {
            let all = listed(&names);
            Problem::Choice(format!("it has no column `{chosen}`; choose from {all}"))
        })?,
        None => table.only_column(has_names, &names)?,
    };
    let mut values = Vec::new();
    table.each_row(has_names, |row| {
        let line = row.position().map_or(0, Position::line);
        values.push(number(row.get(column).unwrap_or_default(), line)?);
        Ok(values.len() <= MAX_VALUES)
    })?;
    Ok(NumberList::plain(values, Some(names[column].clone())))
}

struct Table<'a> {
    text: &'a str,
    delimiter: u8,
}

impl Table<'_> {
    fn reader(&self) -> Reader<&[u8]> {
        ReaderBuilder::new()
            .delimiter(self.delimiter)
            .has_headers(false)
            .comment(Some(b'#'))
            .trim(Trim::All)
            .from_reader(self.text.as_bytes())
    }

    /// Calls `with` for each row after the header, until `with` returns `false`.
    fn each_row(
        &self,
        has_names: bool,
        mut with: impl FnMut(&StringRecord) -> Result<bool, Problem>,
    ) -> Result<(), Problem> {
        let (mut reader, mut row) = (self.reader(), StringRecord::new());
        let mut is_names = has_names;
        while reader.read_record(&mut row).map_err(broken)? {
            if !is_names && !with(&row)? {
                break;
            }
            is_names = false;
        }
        Ok(())
    }

    /// Returns the index of the only column with a number in every field. If the table has a single
    /// column, returns that one even if some of its fields are not numbers.
    fn only_column(&self, has_names: bool, names: &[String]) -> Result<usize, Problem> {
        let mut numeric = vec![true; names.len()];
        self.each_row(has_names, |row| {
            for (numeric, field) in numeric.iter_mut().zip(row) {
                *numeric &= is_number(field);
            }
            Ok(true)
        })?;
        let mut places = (0..names.len()).filter(|&column| numeric[column]);
        match (places.next(), places.next()) {
            (Some(only), None) => Ok(only),
            // The invalid field will be reported when this column is read.
            _ if names.len() == 1 => Ok(0),
            _ => {
                let all = listed(names);
                let why = format!("choose a column with --column: {all}");
                Err(Problem::Choice(why))
            }
        }
    }
}

fn is_number(text: &str) -> bool {
    text.parse::<f64>().is_ok()
}

#[expect(
    clippy::needless_pass_by_value,
    reason = "map_err passes the error by value"
)]
fn broken(error: csv::Error) -> Problem {
    Problem::Content(error.to_string())
}
