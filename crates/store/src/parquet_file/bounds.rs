//! Limits on a Parquet file of unknown origin, checked before the Parquet library reads the file.
//!
//! The library trusts the sizes in a file, so a page header of ten bytes can make it allocate
//! gigabytes. [`Bounds::check_footer`] and [`Bounds::check_pages`] look only at these sizes. Most
//! limits grow with the file, so reading a file of N bytes takes at most a constant plus a multiple
//! of N in memory and time.

mod skim;

use bytes::Bytes;
use parquet::file::metadata::{ParquetMetaData, RowGroupMetaData};

use self::skim::{PageHeader, Skimmer, Stop};
use super::DecodeError;

/// A function that reads bytes of the file. Its arguments are an offset and a number of bytes.
pub(crate) type Fetch = dyn Fn(u64, usize) -> Result<Bytes, DecodeError> + Send + Sync;

/// Why a file is refused: it would take too much memory, or it contains an impossible number.
///
/// Each message says what is wrong and what to do. It forms the second half of a line.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Excess {
    /// The file contains too many of something.
    #[error("it has more than {most} {of}, the maximum for its size; record for a shorter time")]
    TooMany {
        /// Plural noun for the items, such as `rows` or `sources`.
        of: &'static str,
        /// Largest number accepted.
        most: u64,
    },
    /// A part of the file is too large.
    #[error("{part} is larger than {most} bytes; make a new recording")]
    TooLarge {
        /// Name of the part that is too large.
        part: String,
        /// Largest size accepted, in bytes.
        most: u64,
    },
    /// A number is outside the accepted range.
    #[error(
        "{field} is {found} but must be {allowed}; copy the file again, or make a new recording"
    )]
    Value {
        /// Description of the number.
        field: String,
        /// The number that the file contains.
        found: String,
        /// Accepted range.
        allowed: &'static str,
    },
    /// The column's encoding would allow it to take any amount of memory when decoded.
    #[error("column {column} has an unsupported encoding; write it with dictionary encoding")]
    Encoding {
        /// Index of the column, counted from 0.
        column: usize,
    },
    /// A part of the file makes no sense.
    #[error("{part} is invalid; copy the file again, or make a new recording")]
    Nonsense {
        /// Name of the part that makes no sense.
        part: String,
    },
    /// The file cannot be read.
    #[error("{0}")]
    Unreadable(String),
}

#[derive(Debug)]
pub(crate) struct Footer {
    /// Offset of the footer in the file.
    pub(crate) begin: u64,
    /// Contents of the footer, without the length and the magic number after it.
    pub(crate) bytes: Bytes,
}

impl Footer {
    /// Reads the footer of a file of `length` bytes; `None` if the file is too short to have one.
    pub(crate) fn read(length: u64, fetch: &Fetch) -> Result<Option<Self>, DecodeError> {
        // A Parquet file ends with the footer, the footer's length in four bytes, and a four-byte
        // magic number.
        let Some(rest) = length.checked_sub(8) else {
            return Ok(None);
        };
        let footer = fetch(rest, 4)?;
        let footer = <[u8; 4]>::try_from(&footer[..]).map_or(0, u32::from_le_bytes);
        let Some(begin) = rest.checked_sub(footer.into()) else {
            return Ok(None);
        };
        let bytes = fetch(begin, footer as usize)?;
        Ok(Some(Self { begin, bytes }))
    }
}

/// Limits that apply to a file of a given size.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Bounds {
    size: u64,
}

/// Maximum number of columns in a file, and maximum number of column groups. A recording has 19
/// columns, and other tools may add some.
const COLUMNS: u64 = 256;
/// Number of bytes fetched at first to read a page header. A recording's headers take 20 bytes, but
/// statistics may make them longer.
const HEADER: u64 = 128;
/// Maximum length of a page header in bytes.
const LONGEST_HEADER: u64 = 64 * 1024;
/// Memory, in bytes, that a value in a decoded dictionary takes in addition to its own bytes.
const DICTIONARY_VALUE: u64 = 40;

const MIB: u64 = 1 << 20;

impl Bounds {
    pub(crate) const fn new(size: u64) -> Self {
        Self { size }
    }

    pub(crate) const fn size(self) -> u64 {
        self.size
    }

    /// Returns the maximum number of structures in the footer. Each column of a row group has five,
    /// which take about 1 KiB of memory and 100 bytes in the file.
    const fn structures(self) -> u64 {
        16_384 + self.size / 32
    }

    /// Returns the maximum number of rows. Rows are read one at a time, so this limits time rather
    /// than memory: reading a file of 100 kB takes at most about ten seconds. The limit has to be
    /// high, because the rows of an idle simulated machine compress to almost nothing.
    const fn rows(self) -> u64 {
        16 * MIB + 64 * self.size
    }

    /// Returns the maximum total size, in bytes, of the decompressed pages in memory at any one
    /// time.
    const fn pages(self) -> u64 {
        16 * MIB + 4 * self.size
    }

    /// Checks the sizes in the footer before the library decodes it.
    pub(crate) fn check_footer(self, footer: &[u8]) -> Result<(), Excess> {
        let mut columns = 0;
        let mut skimmer = Skimmer::new(footer);
        let result = skimmer.structure(self.structures(), &mut |path, value| {
            if path == SCHEMA {
                columns = value;
            }
        });
        match result {
            Ok(()) if columns > COLUMNS.cast_signed() => Err(Excess::TooMany {
                of: "columns",
                most: COLUMNS,
            }),
            Ok(()) => Ok(()),
            Err(Stop::TooMany) => Err(Excess::TooMany {
                of: "parts in its footer",
                most: self.structures(),
            }),
            Err(Stop::Short | Stop::Nonsense) => Err(Excess::Nonsense {
                part: "its footer".to_owned(),
            }),
        }
    }

    pub(crate) fn check_metadata(self, metadata: &ParquetMetaData) -> Result<(), Excess> {
        let (mut rows, mut bytes) = (0_u64, 0_u64);
        for group in metadata.row_groups() {
            rows = rows.saturating_add(unsigned(group.num_rows(), "a number of rows")?);
            for column in group.columns() {
                let size = unsigned(column.compressed_size(), "a column's size")?;
                bytes = bytes.saturating_add(size);
                unsigned(column.data_page_offset(), "a column's place")?;
                unsigned(
                    column.dictionary_page_offset().unwrap_or(0),
                    "a column's place",
                )?;
            }
        }
        if rows > self.rows() {
            let most = self.rows();
            return Err(Excess::TooMany { of: "rows", most });
        }
        // If columns could share bytes, the same bytes could be read any number of times.
        if bytes > self.size {
            return Err(Excess::TooLarge {
                part: "all columns together".to_owned(),
                most: self.size,
            });
        }
        Ok(())
    }

    /// Checks the page headers of these columns in one row group before the pages are decompressed.
    pub(crate) fn check_pages(
        self,
        group: &RowGroupMetaData,
        columns: impl Iterator<Item = usize>,
        fetch: &Fetch,
    ) -> Result<(), Excess> {
        let rows = unsigned(group.num_rows(), "a number of rows")?;
        let mut held = 0;
        for number in columns {
            let column = Column {
                number,
                rows,
                bounds: self,
            };
            let (start, length) = group.column(number).byte_range();
            let end = start.saturating_add(length);
            held += column.check(start..end.min(self.size), fetch)?;
            if held > self.pages() {
                return Err(Excess::TooLarge {
                    part: "a decompressed row group".to_owned(),
                    most: self.pages(),
                });
            }
        }
        Ok(())
    }
}

/// Path to the list of columns in the footer.
const SCHEMA: &[i16] = &[2];

struct Column {
    number: usize,
    rows: u64,
    bounds: Bounds,
}

impl Column {
    /// Checks the headers of the column's pages in `place`, which is a range of the file. Returns
    /// how many bytes of memory the dictionary and the largest page need.
    fn check(&self, place: std::ops::Range<u64>, fetch: &Fetch) -> Result<u64, Excess> {
        let (mut dictionary, mut largest) = (0, 0);
        let mut at = place.start;
        while at < place.end {
            let (header, length) = self.header(at, place.end, fetch)?;
            let nonsense = || self.nonsense();
            let packed = u64::try_from(header.packed).map_err(|_| nonsense())?;
            let unpacked = u64::try_from(header.unpacked).map_err(|_| nonsense())?;
            let values = u64::try_from(header.values).map_err(|_| nonsense())?;
            if header.is_dictionary() {
                dictionary = values
                    .saturating_mul(DICTIONARY_VALUE)
                    .saturating_add(unpacked);
                if dictionary > self.bounds.pages() {
                    return Err(self.too_large());
                }
            } else {
                self.check_data(&header, values)?;
                largest = u64::max(largest, unpacked);
            }
            at = at.saturating_add(length).saturating_add(packed);
        }
        if largest > self.bounds.pages() {
            return Err(self.too_large());
        }
        Ok(dictionary + largest)
    }

    fn check_data(&self, header: &PageHeader, values: u64) -> Result<(), Excess> {
        if !header.has_bounded_encoding() {
            let column = self.number;
            return Err(Excess::Encoding { column });
        }
        if values > self.rows {
            return Err(self.nonsense());
        }
        Ok(())
    }

    /// Reads the page header at offset `at`. Returns the header and its length.
    fn header(&self, at: u64, end: u64, fetch: &Fetch) -> Result<(PageHeader, u64), Excess> {
        for most in [HEADER, LONGEST_HEADER] {
            let length = usize::try_from(most.min(end - at)).unwrap_or(0);
            let bytes = fetch(at, length).map_err(|why| Excess::Unreadable(why.to_string()))?;
            match PageHeader::read(&bytes) {
                Ok((header, length)) => return Ok((header, length as u64)),
                Err(Stop::Short) if most < end - at => {}
                Err(_) => break,
            }
        }
        Err(self.nonsense())
    }

    fn nonsense(&self) -> Excess {
        Excess::Nonsense {
            part: format!("a page header of column {}", self.number),
        }
    }

    fn too_large(&self) -> Excess {
        Excess::TooLarge {
            part: format!("a decompressed page of column {}", self.number),
            most: self.bounds.pages(),
        }
    }
}

fn unsigned(number: i64, field: &str) -> Result<u64, Excess> {
    u64::try_from(number).map_err(|_| Excess::Value {
        field: field.to_owned(),
        found: number.to_string(),
        allowed: "0 or more",
    })
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use bytes::Bytes;
    use parquet::file::metadata::{FileMetaData, ParquetMetaData, RowGroupMetaData};
    use parquet::schema::types::{SchemaDescriptor, Type};

    use super::{Bounds, Column, Excess, Fetch};

    /// Checks a column with 10 rows that consists of `pages`, in a file of `size` bytes.
    fn check(pages: &'static [u8], size: u64) -> Result<u64, Excess> {
        let column = Column {
            number: 3,
            rows: 10,
            bounds: Bounds::new(size),
        };
        let fetch: Box<Fetch> = Box::new(|start, length| {
            let start = usize::try_from(start).unwrap();
            Ok(Bytes::from_static(&pages[start..start + length]))
        });
        column.check(0..pages.len() as u64, &*fetch)
    }

    /// Returns the header of an empty page: the page type, the decompressed size, and the header
    /// for that type.
    const fn page(kind: u8, field: u8, values: u8, encoding: u8) -> [u8; 14] {
        [
            0x15, kind, 0x15, 200, 1, 0x15, 0, field, 0x15, values, 0x15, encoding, 0, 0,
        ]
    }

    #[test]
    fn pages_are_counted_by_what_they_take_in_memory() {
        // A dictionary with 2 values, followed by a page with 10 values.
        static PAGES: [u8; 28] = {
            let (dictionary, data) = (page(4, 0x4c, 4, 0), page(0, 0x2c, 20, 16));
            let mut pages = [0; 28];
            let mut at = 0;
            while at < 14 {
                pages[at] = dictionary[at];
                pages[14 + at] = data[at];
                at += 1;
            }
            pages
        };
        assert_eq!(check(&PAGES, 0), Ok(100 + 2 * 40 + 100));
    }

    static MANY_VALUES: [u8; 14] = page(0, 0x2c, 22, 0);
    static DELTA_LENGTH: [u8; 14] = page(0, 0x2c, 20, 12);
    /// A dictionary that claims to contain 2^30 values.
    static DICTIONARY: [u8; 17] = [
        0x15, 4, 0x15, 2, 0x15, 2, 0x4c, 0x15, 0x80, 0x80, 0x80, 0x80, 0x08, 0x15, 0, 0, 0,
    ];
    /// A page that claims to contain 2^30 bytes.
    static LARGE: [u8; 17] = [
        0x15, 0, 0x15, 0x80, 0x80, 0x80, 0x80, 0x08, 0x15, 2, 0x2c, 0x15, 2, 0x15, 0, 0, 0,
    ];

    #[test]
    fn a_page_that_claims_too_much_is_refused() {
        let refused = |pages: &'static [u8]| check(pages, 0).unwrap_err();
        assert!(matches!(refused(&MANY_VALUES), Excess::Nonsense { .. }));
        assert_eq!(refused(&DELTA_LENGTH), Excess::Encoding { column: 3 });
        assert!(matches!(refused(&DICTIONARY), Excess::TooLarge { .. }));
        assert!(matches!(refused(&LARGE), Excess::TooLarge { .. }));
        // In a larger file, a page of this size is accepted.
        assert!(check(&LARGE, 1 << 30).is_ok());
    }

    /// Returns the metadata of a file without columns, whose `rows` rows are in two groups.
    fn metadata(rows: i64) -> ParquetMetaData {
        let root = Type::group_type_builder("root").build().unwrap();
        let schema = Arc::new(SchemaDescriptor::new(Arc::new(root)));
        let group = |rows| {
            let builder = RowGroupMetaData::builder(schema.clone());
            builder.set_num_rows(rows).build().unwrap()
        };
        let groups = vec![group(rows / 2), group(rows - rows / 2)];
        let file = FileMetaData::new(1, rows, None, None, schema.clone(), None);
        ParquetMetaData::new(file, groups)
    }

    /// Identical rows take almost no space in a file. A file of 120 kB once contained 100 million
    /// rows and took minutes to read.
    #[test]
    fn the_number_of_rows_is_limited_by_the_size_of_the_file() {
        let most = (16 << 20) + 64 * 1_000;
        let bounds = Bounds::new(1_000);
        assert_eq!(bounds.check_metadata(&metadata(most)), Ok(()));
        let refused = bounds.check_metadata(&metadata(most + 1)).unwrap_err();
        let most = most.cast_unsigned();
        assert_eq!(refused, Excess::TooMany { of: "rows", most });
    }

    #[test]
    fn a_footer_may_not_have_more_parts_than_its_file_can_have() {
        let list = [0x29, 0xfc, 0xff, 0xff, 0x0f];
        let footer = [&list[..], &vec![0; 100_000]].concat();
        let bounds = Bounds::new(200_000);
        assert!(matches!(
            bounds.check_footer(&footer),
            Err(Excess::TooMany { .. })
        ));
    }
}
