//! Numbers of values in intervals.

/// An interval of values, with the number of values in it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Bin {
    /// Lower end.
    pub(crate) low: f64,
    /// The value that the tool gives for all values in the interval.
    pub(crate) value: f64,
    /// Upper end.
    pub(crate) high: f64,
    /// Number of values.
    pub(crate) count: u64,
}

impl Bin {
    /// Returns a bin of equal values, which are known exactly.
    pub(crate) fn exact(value: f64, count: u64) -> Self {
        Self {
            low: value,
            value,
            high: value,
            count,
        }
    }
}

/// Number of values in each interval. The bins are sorted, not empty, and do not overlap.
#[derive(Clone, Debug, Default)]
pub(crate) struct Histogram {
    bins: Vec<Bin>,
    /// Number of values up to the end of each bin.
    up_to: Vec<u64>,
    /// Number of values above all bins.
    over: u64,
    /// The largest value, if the tool reports it.
    max: Option<f64>,
}

/// Why bins do not form a histogram.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum HistogramError {
    /// All bins are empty.
    #[error("it contains no values")]
    Empty,
    /// A value is negative or not finite.
    #[error("it contains a value that is negative or not finite")]
    Value,
    /// There are more than 2^64 values.
    #[error("its counts add up to more than 2^64")]
    Count,
}

impl Histogram {
    /// Creates a histogram from bins in any order. `over` is the number of values above all bins,
    /// and `max` the largest value.
    ///
    /// # Errors
    /// Returns an error if all bins are empty, if a value is negative or not finite, or if the
    /// counts are too large.
    pub(crate) fn new(
        bins: impl IntoIterator<Item = Bin>,
        over: u64,
        max: Option<f64>,
    ) -> Result<Self, HistogramError> {
        let mut bins: Vec<Bin> = bins.into_iter().filter(|bin| bin.count > 0).collect();
        let is_valid = |value: f64| value.is_finite() && value >= 0.0;
        let are_valid = |bin: &Bin| [bin.low, bin.value, bin.high].into_iter().all(is_valid);
        if !bins.iter().all(are_valid) || !max.is_none_or(is_valid) {
            return Err(HistogramError::Value);
        }
        bins.sort_by(|a, b| a.value.total_cmp(&b.value));
        bins.dedup_by(|next, kept| {
            let is_same = next.value.total_cmp(&kept.value).is_eq();
            if is_same {
                kept.low = kept.low.min(next.low);
                kept.high = kept.high.max(next.high);
                kept.count = kept.count.saturating_add(next.count);
            }
            is_same
        });
        let mut count = 0_u64;
        let mut up_to = Vec::with_capacity(bins.len());
        for bin in &bins {
            count = count.checked_add(bin.count).ok_or(HistogramError::Count)?;
            up_to.push(count);
        }
        match count.checked_add(over) {
            None => Err(HistogramError::Count),
            Some(0) => Err(HistogramError::Empty),
            Some(_) => Ok(Self {
                max: max.or_else(|| bins.last().filter(|_| over == 0).map(|bin| bin.value)),
                bins,
                up_to,
                over,
            }),
        }
    }

    /// Returns the number of values.
    pub(crate) fn count(&self) -> u64 {
        self.up_to.last().copied().unwrap_or(0) + self.over
    }

    /// Returns the largest value; `None` if it is unknown.
    pub(crate) fn max(&self) -> Option<f64> {
        self.max
    }

    /// Returns the bin of the value with this rank, counted from 1 at the smallest value. Returns
    /// `None` if that value is above all bins.
    pub(crate) fn at(&self, rank: u64) -> Option<&Bin> {
        self.bins
            .get(self.up_to.partition_point(|&up_to| up_to < rank))
    }

    /// Returns bounds of the value with this rank, as [`at`](Self::at) does. If the value is above
    /// all bins, it is between the last bin and the largest value. Returns `None` if that is
    /// unknown.
    pub(crate) fn bounds(&self, rank: u64) -> Option<Bin> {
        if let Some(bin) = self.at(rank) {
            return Some(*bin);
        }
        let (max, last) = (self.max?, self.bins.last());
        let low = last.map_or(0.0, |bin| bin.high);
        Some(Bin {
            low: low.min(max),
            value: max,
            high: max,
            count: self.over,
        })
    }

    /// Returns the bins.
    #[cfg(test)]
    pub(crate) fn bins(&self) -> &[Bin] {
        &self.bins
    }

    /// Adds up histograms of the same quantity.
    ///
    /// # Errors
    /// Returns an error if the counts are too large.
    pub(crate) fn sum<'a>(
        all: impl IntoIterator<Item = &'a Self> + Clone,
    ) -> Result<Self, HistogramError> {
        let over = all
            .clone()
            .into_iter()
            .try_fold(0_u64, |sum, each| sum.checked_add(each.over));
        let over = over.ok_or(HistogramError::Count)?;
        let max = all.clone().into_iter().filter_map(Self::max);
        let max = max.max_by(f64::total_cmp);
        let bins = all.into_iter().flat_map(|each| each.bins.iter().copied());
        Self::new(bins, over, max)
    }
}
