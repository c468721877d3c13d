//! Texts exchanged between the rows of a batch: the increase of the loss measures how much the model uses the text.

/// Number of rows by which texts move down, so that valid rows get the text of another row: the smallest shift that leaves
/// the fewest rows with their own text. `None` with a single row, or if that would be most of them.
pub(super) fn shift(tokens: &[i32], lengths: &[i32], valid: usize) -> Option<usize> {
    let width = tokens.len() / lengths.len().max(1);
    let text = |row: usize| {
        let length = usize::try_from(lengths[row]).unwrap_or(0).min(width);
        &tokens[row * width..row * width + length]
    };
    let same = |shift: usize| (0..valid).filter(|&row| text(row) == text((row + shift) % valid)).count();
    let (unchanged, shift) = (1..valid).map(|shift| (same(shift), shift)).min()?;
    (2 * unchanged <= valid).then_some(shift)
}

/// The texts of a batch moved down; rows after the valid ones stay.
pub(super) fn shuffled(tokens: &[i32], lengths: &[i32], valid: usize, shift: usize) -> (Vec<i32>, Vec<i32>) {
    let width = tokens.len() / lengths.len().max(1);
    let (mut moved, mut moved_lengths) = (tokens.to_vec(), lengths.to_vec());
    for row in 0..valid {
        let from = (row + shift) % valid;
        moved[row * width..][..width].copy_from_slice(&tokens[from * width..][..width]);
        moved_lengths[row] = lengths[from];
    }
    (moved, moved_lengths)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Rows of texts, padded to three tokens.
    fn batch(texts: &[&[i32]]) -> (Vec<i32>, Vec<i32>) {
        let padded = |text: &&[i32]| (0..3).map(|i| text.get(i).copied().unwrap_or(0)).collect::<Vec<_>>();
        (texts.iter().flat_map(padded).collect(), texts.iter().map(|text| text.len() as i32).collect())
    }

    #[test]
    fn every_valid_row_gets_the_text_of_another_with_its_length() {
        let (tokens, lengths) = batch(&[&[1, 2], &[3], &[4, 5, 6], &[9]]);
        let by = shift(&tokens, &lengths, 3).unwrap();
        let (moved, moved_lengths) = shuffled(&tokens, &lengths, 3, by);
        assert_eq!((moved, moved_lengths), batch(&[&[3], &[4, 5, 6], &[1, 2], &[9]]));
    }

    #[test]
    fn equal_texts_are_not_exchanged() {
        // Moved by one, half of the rows of the two pairs would keep their text.
        let (tokens, lengths) = batch(&[&[1], &[1], &[2], &[2]]);
        assert_eq!(shift(&tokens, &lengths, 4), Some(2));
    }

    #[test]
    fn a_single_row_and_a_batch_of_one_text_have_no_shift() {
        let (tokens, lengths) = batch(&[&[1], &[2]]);
        assert_eq!(shift(&tokens, &lengths, 1), None);
        let (tokens, lengths) = batch(&[&[1, 2], &[1, 2], &[1, 2]]);
        assert_eq!(shift(&tokens, &lengths, 3), None);
        assert_eq!(shift(&[], &[], 0), None);
    }
}
