//! Overlays on another source.

use std::sync::Arc;

use myxtts_data::record::{Column, DVAE_MEL, Overlay, RecordError, RecordSource, TOKENS};

use super::synthetic::Synthetic;

/// Records cut to their first three frames.
struct Short {
    base: Arc<Synthetic>,
    columns: [Column; 2],
}

impl Overlay for Short {
    fn base(&self) -> &dyn RecordSource {
        &*self.base
    }

    fn columns(&self) -> &[Column] {
        &self.columns
    }

    fn rows(&self, record: usize, column: usize) -> u32 {
        self.base.rows(record, column).min(3)
    }

    fn read(&self, record: usize, column: usize, first_row: u32, out: &mut [u8]) -> Result<u32, RecordError> {
        let left = 3u32.saturating_sub(first_row) as usize * self.columns[column].row_bytes();
        let fits = out.len().min(left);
        self.base.read(record, column, first_row, &mut out[..fits])
    }

    fn fingerprint(&self) -> [u8; 32] {
        [7; 32]
    }
}

#[test]
fn an_overlay_overrides_its_own_methods_and_forwards_the_rest() {
    let groups = (0..9).map(|record| (record % 3, (record / 2) % 2)).collect();
    let base = Arc::new(Synthetic::speech(9).grouped(groups));
    let over: Arc<dyn RecordSource> = Arc::new(Short { base: base.clone(), columns: [TOKENS, DVAE_MEL] });
    assert_eq!((over.len(), over.is_empty()), (9, false));
    assert_eq!((over.speakers(), over.languages()), (base.speakers(), base.languages()));
    for record in 0..9 {
        let who =
            |source: &dyn RecordSource| (source.id(record), source.speaker(record), source.language(record));
        assert_eq!(who(&*over), who(&*base));
        assert_eq!(over.rows(record, 1), 3);
        let mut out = vec![0; 5 * DVAE_MEL.row_bytes()];
        assert_eq!(over.read(record, 1, 1, &mut out).unwrap(), 2);
        assert_eq!(out[..DVAE_MEL.row_bytes()], base.array(record as u32, 1)[DVAE_MEL.row_bytes()..][..320]);
    }
    assert_eq!((over.columns(), over.fingerprint()), (&[TOKENS, DVAE_MEL][..], [7; 32]));
}
