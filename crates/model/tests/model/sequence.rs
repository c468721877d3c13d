//! Tests the GPT's inputs and targets against the reference and by hand.

use crate::goldens;
use crate::gpt::{ids, reference_inputs, sizes};
use myxtts_model::sequence::{frame_lengths, repeat_frames};
use myxtts_model::*;

#[test]
fn coqui_masks_match_the_reference() {
    let (sizes, given) = (sizes(), reference_inputs());
    let wanted = goldens::tensors("gpt/derived.safetensors");
    let found = Masks::Coqui.sequences(&sizes, &given.rows()).unwrap();
    let text = [("text_in", &found.text_in), ("text_targets", &found.text_targets)];
    let mel = [("mel_in", &found.mel_in), ("mel_targets", &found.mel_targets)];
    let all = text.into_iter().chain(mel).chain([("key_mask", &found.key_mask)]);
    let mut compared = 0;
    for (name, found) in all {
        assert_eq!(*found, ids(&wanted[name]), "{name}");
        compared += 1;
    }
    assert_eq!(compared, wanted.len(), "every golden array is compared");
}

/// Text of two and three tokens, codes of four and three; ids after a row's end are outside every table.
fn rows<'a>() -> Rows<'a> {
    Rows {
        text: &[7, 8, -9, 4, 5, 6],
        text_lengths: &[2, 3],
        codes: &[10, 11, 12, 13, 20, 21, 22, 999],
        code_lengths: &[4, 3],
        prompts: &[],
    }
}

fn tiny() -> GptSizes {
    let mut sizes = GptSizes::of(1, 16, 1, 300, 30);
    sizes.perceiver.latents = 2;
    sizes
}

#[test]
fn with_corrected_masks_every_stop_is_visible_and_counts_once() {
    let found = Masks::Corrected.sequences(&tiny(), &rows()).unwrap();
    assert_eq!((found.text, found.mel), (5, 5));
    assert_eq!(found.text_in, [261, 7, 8, 0, 0, 261, 4, 5, 6, 0]);
    assert_eq!(found.text_targets, [7, 8, 0, -1, -1, 4, 5, 6, 0, -1]);
    assert_eq!(found.mel_in, [30, 10, 11, 12, 13, 30, 20, 21, 22, 31]);
    assert_eq!(found.mel_targets, [10, 11, 12, 13, 31, 20, 21, 22, 31, -1]);
    let [first, second] = [[1, 1, 1, 1, 1, 1, 0, 1, 1, 1, 1, 1], [1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 0]];
    assert_eq!(found.key_mask, [first, second].concat());
}

#[test]
fn codes_of_the_conditioning_segment_do_not_count() {
    // Part of code 0, all of code 1, part of code 2; nothing in the other row.
    let prompts = [1000..2050, 0..0];
    let rows = Rows { prompts: &prompts, ..rows() };
    let corrected = Masks::Corrected.sequences(&tiny(), &rows).unwrap();
    assert_eq!(corrected.mel_targets, [-1, -1, -1, 13, 31, 20, 21, 22, 31, -1]);
    // Coqui considers only the last row, and takes a code for 256 samples.
    let plain = Masks::Coqui.sequences(&tiny(), &Rows { prompts: &[], ..rows }).unwrap();
    assert_eq!(Masks::Coqui.sequences(&tiny(), &rows).unwrap(), plain);
    let prompts = [0..0, 300..1500];
    let last = Masks::Coqui.sequences(&tiny(), &Rows { prompts: &prompts, ..rows }).unwrap();
    assert_eq!(last.mel_targets[9..], [20, -1, -1, -1, -1, 31, 31, -1, -1]);
    // Longer than the clip: STOP still counts.
    let prompts = [0..1 << 20, 0..0];
    let all = Masks::Corrected.sequences(&tiny(), &Rows { prompts: &prompts, ..rows }).unwrap();
    assert_eq!(all.mel_targets[..5], [-1, -1, -1, -1, 31]);
}

#[test]
fn a_row_without_codes_has_no_loss_and_sees_its_conditioning() {
    for masks in [Masks::Corrected, Masks::Coqui] {
        let rows = Rows { text_lengths: &[2, 0], code_lengths: &[4, 0], ..rows() };
        let found = masks.sequences(&tiny(), &rows).unwrap();
        assert!(found.text_targets[found.text..].iter().all(|&t| t == -1));
        assert!(found.mel_targets[found.mel..].iter().all(|&t| t == -1));
        let keys = &found.key_mask[found.key_mask.len() / 2..];
        assert!(keys[..2] == [1, 1] && keys[2..].iter().all(|&k| k == 0));
    }
}

#[test]
fn invalid_sequences_are_errors() {
    let sizes = tiny();
    let error = |rows: Rows<'_>| Masks::Corrected.sequences(&sizes, &rows).unwrap_err().to_string();
    let message = error(Rows { text: &[1, 2, 3], ..rows() });
    assert!(message.contains("2 rows") && message.contains("3 tokens"), "{message}");
    let message = error(Rows { code_lengths: &[4], ..rows() });
    assert!(message.contains("1 lengths of codes"), "{message}");
    let message = error(Rows { text_lengths: &[4, 3], ..rows() });
    assert!(
        message.contains("row 0") && message.contains("4 tokens") && message.contains("padded length is 3"),
        "{message}"
    );
    let message = error(Rows { code_lengths: &[4, -1], ..rows() });
    assert!(message.contains("row 1") && message.contains("-1 codes"), "{message}");
    let message = error(Rows { code_lengths: &[4, 4], ..rows() });
    assert!(message.contains("row 1") && message.contains("999") && message.contains("0 to 31"), "{message}");
    let message = error(Rows { text_lengths: &[3, 3], ..rows() });
    assert!(
        message.contains("row 0") && message.contains("token -9") && message.contains("position 2"),
        "{message}"
    );
    let long = vec![5; 2 * 700];
    let message = error(Rows { codes: &long, ..rows() });
    assert!(message.contains("700 codes") && message.contains("608"), "{message}");
    let message = error(Rows { text_lengths: &[], code_lengths: &[], text: &[], codes: &[], prompts: &[] });
    assert!(message.contains("0 rows"), "{message}");
}

#[test]
fn short_windows_are_padded_by_repetition() {
    // Two channels, windows of five frames: two frames of audio, none, all.
    let mut mels: Vec<f32> = (0..30u8).map(f32::from).collect();
    repeat_frames(&mut mels, 2, &[2, 0, 5]);
    assert_eq!(mels[..10], [0.0, 1.0, 2.0, 3.0, 0.0, 1.0, 2.0, 3.0, 0.0, 1.0]);
    assert_eq!(mels[10..], (10..30u8).map(f32::from).collect::<Vec<_>>());
    assert_eq!(frame_lengths(&tiny(), &[3, 0]), (vec![3, 1], vec![5, 3]));
}
