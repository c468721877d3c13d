//! Formats amounts of memory for messages.

/// Formats an amount of memory in binary units: `1.5 GiB`, `215.0 MiB`, `12.0 KiB`.
pub fn memory_size(bytes: u64) -> String {
    let mut amount = bytes as f64 / 1024.0;
    for unit in ["KiB", "MiB"] {
        // Rounded, it would be 1024.0.
        if amount < 1023.95 {
            return format!("{amount:.1} {unit}");
        }
        amount /= 1024.0;
    }
    format!("{amount:.1} GiB")
}

#[cfg(test)]
mod tests {
    use super::memory_size;

    #[test]
    fn the_unit_follows_the_amount() {
        for (bytes, text) in [
            (0, "0.0 KiB"),
            (12 << 10, "12.0 KiB"),
            ((1 << 20) - 1, "1.0 MiB"),
            (215 << 20, "215.0 MiB"),
            ((1 << 30) - 1, "1.0 GiB"),
            (3 << 29, "1.5 GiB"),
            (4 << 40, "4096.0 GiB"),
        ] {
            assert_eq!(memory_size(bytes), text);
        }
    }
}
