//! The most frequent English words, with their approximate frequencies.

/// What may follow a word.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Next {
    /// A content word, without which the sentence would make no sense: «the», «of».
    Content,
    /// Any word, or the end of the sentence.
    Anything,
}
use Next::{Anything, Content};

/// Word, frequency per ten thousand words of prose, and what may follow.
#[rustfmt::skip]
pub(crate) const FUNCTION_WORDS: &[(&str, u32, Next)] = &[
    ("the", 600, Content), ("of", 290, Content), ("and", 280, Content), ("to", 250, Content), ("a", 220, Content),
    ("in", 200, Content), ("that", 110, Anything), ("i", 100, Content), ("it", 100, Anything), ("is", 95, Content),
    ("was", 95, Content), ("he", 90, Content), ("for", 90, Content), ("you", 80, Anything), ("on", 70, Content),
    ("with", 68, Content), ("as", 62, Content), ("his", 60, Content), ("had", 55, Content), ("be", 55, Content),
    ("at", 52, Content), ("but", 48, Content), ("not", 48, Content), ("she", 45, Content), ("they", 45, Content),
    ("have", 45, Content), ("by", 44, Content), ("her", 42, Content), ("this", 42, Anything), ("from", 40, Content),
    ("we", 38, Content), ("are", 38, Content), ("or", 36, Content), ("my", 32, Content), ("were", 30, Content),
    ("one", 30, Anything), ("all", 30, Anything), ("me", 28, Anything), ("there", 28, Anything), ("him", 27, Anything),
    ("which", 27, Content), ("so", 27, Content), ("their", 25, Content), ("would", 24, Content), ("said", 24, Anything),
    ("when", 23, Content), ("been", 22, Content), ("has", 22, Content), ("who", 22, Content), ("will", 22, Content),
    ("no", 22, Content), ("what", 22, Content), ("if", 22, Content), ("them", 21, Anything), ("out", 20, Anything),
    ("up", 20, Anything), ("do", 20, Anything), ("more", 18, Anything), ("your", 18, Content), ("into", 17, Content),
    ("about", 17, Content), ("can", 17, Content), ("could", 16, Content), ("then", 16, Anything), ("some", 15, Content),
    ("its", 14, Content), ("our", 14, Content), ("than", 13, Content), ("now", 13, Anything), ("only", 13, Content),
    ("like", 13, Content), ("did", 12, Anything), ("over", 11, Anything), ("other", 11, Content), ("very", 11, Content),
    ("any", 10, Content), ("two", 10, Content), ("how", 10, Content), ("these", 9, Content), ("after", 9, Content),
    ("down", 9, Anything), ("should", 9, Content), ("where", 9, Content), ("here", 9, Anything), ("just", 9, Content),
    ("us", 9, Anything), ("must", 8, Content), ("before", 8, Anything), ("through", 8, Content), ("may", 8, Content),
    ("well", 8, Anything), ("because", 8, Content), ("don't", 8, Content), ("those", 7, Content), ("such", 7, Content),
    ("never", 7, Content), ("off", 7, Anything), ("too", 7, Anything), ("it's", 7, Content), ("am", 6, Content),
    ("again", 6, Anything), ("i'm", 6, Content), ("much", 6, Anything), ("even", 6, Content), ("might", 5, Content),
    ("while", 5, Content), ("between", 5, Content), ("without", 5, Content), ("every", 5, Content), ("many", 5, Content),
    ("still", 5, Anything), ("also", 5, Content), ("that's", 5, Content), ("three", 5, Content), ("under", 4, Content),
    ("against", 4, Content), ("until", 4, Content), ("upon", 4, Content), ("yet", 4, Anything), ("each", 4, Content),
    ("most", 4, Content), ("same", 4, Content), ("own", 4, Content), ("another", 4, Content), ("didn't", 4, Content),
    ("few", 3, Content), ("both", 3, Anything), ("shall", 3, Content), ("can't", 3, Content), ("i'll", 3, Content),
    ("you're", 3, Content), ("he'd", 2, Content), ("we'll", 2, Content), ("won't", 2, Content), ("wasn't", 2, Content),
];

/// Words that begin a question.
#[rustfmt::skip]
pub(crate) const QUESTION_WORDS: [&str; 20] = [
    "who", "what", "when", "where", "why", "how", "which", "is", "are", "was", "were", "do", "does", "did", "can",
    "could", "will", "would", "have", "has",
];
