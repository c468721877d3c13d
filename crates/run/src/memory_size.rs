//! Amounts of memory in words.

const MIB: f64 = (1u64 << 20) as f64;

/// An amount of memory in the units in which memory is sold and limited: `1.5 GiB`, below 1 GiB `215 MiB`.
pub fn memory_size(bytes: u64) -> String {
    let mebibytes = bytes as f64 / MIB;
    if mebibytes < 1023.5 { format!("{mebibytes:.0} MiB") } else { format!("{:.1} GiB", mebibytes / 1024.0) }
}

#[cfg(test)]
mod tests {
    use super::memory_size;

    #[test]
    fn small_amounts_are_in_mebibytes() {
        for (bytes, text) in [
            (0, "0 MiB"),
            (215 << 20, "215 MiB"),
            ((1 << 30) - 1, "1.0 GiB"),
            (3 << 29, "1.5 GiB"),
            (24 << 30, "24.0 GiB"),
        ] {
            assert_eq!(memory_size(bytes), text);
        }
    }
}
