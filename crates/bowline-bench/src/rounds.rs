//! Statistics over rounds: compared servers alternate, and the median counts, because the speed of
//! a machine varies over time.

/// The median of the ratios per round: what slows a round slows both servers.
pub(crate) fn ratio(ours: &[f64], theirs: &[f64]) -> f64 {
    let mut ratios: Vec<f64> = ours.iter().zip(theirs).map(|(a, b)| a / b).collect();
    middle(&mut ratios)
}

pub(crate) fn middle(values: &mut [f64]) -> f64 {
    quantile(values, 0.5)
}

/// The quantile `share` of the values.
pub(crate) fn quantile(values: &mut [f64], share: f64) -> f64 {
    values.sort_unstable_by(f64::total_cmp);
    let place = (values.len() as f64 * share) as usize;
    values.get(place.min(values.len().saturating_sub(1))).copied().unwrap_or(f64::NAN)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_middle_ratio_counts() {
        assert_eq!(ratio(&[1.0, 9.0, 4.0], &[2.0, 1.0, 4.0]), 1.0);
        assert!(ratio(&[], &[]).is_nan());
    }

    #[test]
    fn a_quantile_is_one_of_the_values() {
        let mut values: Vec<f64> = (0..200).rev().map(f64::from).collect();
        assert_eq!(quantile(&mut values, 0.99), 198.0);
        assert_eq!(quantile(&mut values, 1.0), 199.0);
        assert_eq!(middle(&mut values), 100.0);
    }
}
