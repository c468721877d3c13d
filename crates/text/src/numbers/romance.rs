//! Number composition shared by Spanish and Portuguese: scale words for every power of a million.

/// Words from which large numbers are joined.
pub(super) struct Millions<'a> {
    /// Zero.
    pub zero: &'a str,
    /// One before a scale word.
    pub one: &'a str,
    /// Singular and plural of each power of a million; the first entry is not used.
    pub scales: &'a [(&'a str, &'a str)],
    /// Separator between the parts, with its spaces.
    pub between: &'a str,
}

impl Millions<'_> {
    /// Reads the groups of six digits with `group` (its second argument: whether the group is the last), each followed by
    /// its scale word.
    pub fn read(&self, n: u128, group: impl Fn(usize, bool) -> String) -> Option<String> {
        if n == 0 {
            return Some(self.zero.into());
        }
        let (mut rest, mut power, mut parts) = (n, 0, Vec::new());
        while rest > 0 {
            let value = (rest % 1_000_000) as usize;
            let (one, many) = self.scales.get(power)?;
            match (value, power) {
                (0, _) => {}
                (_, 0) => parts.push(group(value, true)),
                (1, _) => parts.push(format!("{} {one}", self.one)),
                _ => parts.push(format!("{} {many}", group(value, false))),
            }
            rest /= 1_000_000;
            power += 1;
        }
        parts.reverse();
        Some(parts.join(self.between))
    }
}
