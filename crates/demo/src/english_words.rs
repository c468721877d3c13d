//! The English lexicon: unstressed function words, and words of the demo sentences that the rules would misread.

#[rustfmt::skip]
pub(crate) const LEXICON: &[(&str, &str)] = &[
    // function words
    ("of", "AX V"), ("to", "T UW"), ("is", "IH Z"), ("was", "W AX Z"), ("are", "AA R"), ("and", "AX N D"),
    ("this", "DH IH S"), ("that", "DH AE T"), ("with", "W IH DH"), ("for", "F AO R"), ("you", "Y UW"), ("your", "Y AO R"),
    ("my", "M AY"), ("me", "M IY"), ("we", "W IY"), ("he", "HH IY"), ("she", "SH IY"), ("our", "AW ER"), ("it", "IH T"),
    ("at", "AE T"), ("in", "IH N"), ("on", "AA N"), ("by", "B AY"), ("if", "IH F"), ("but", "B AH T"), ("an", "AE N"),
    ("has", "HH AE Z"), ("did", "D IH D"), ("do", "D UW"), ("can", "K AE N"), ("will", "W IH L"),
    // words with an irregular pronunciation
    ("ago", "AX G OW1"), ("bakery", "B EY1 K ER IY"), ("banana", "B AX N AE1 N AX"), ("because", "B IH K AO1 Z"),
    ("before", "B IH F AO1 R"), ("behind", "B IH HH AY1 N D"), ("berlin", "B ER L IH1 N"), ("breakfast", "B R EH1 K F AX S T"),
    ("carrot", "K EH1 R AX T"), ("city", "S IH1 T IY"), ("david", "D EY1 V IH D"), ("degree", "D IH G R IY1"), ("evening", "IY1 V N IH NG"),
    ("father", "F AA1 DH ER"), ("four", "F AO1 R"), ("friday", "F R AY1 D EY"), ("friend", "F R EH1 N D"), ("get", "G EH1 T"),
    ("heavy", "HH EH1 V IY"), ("honey", "HH AH1 N IY"), ("house", "HH AW1 S"), ("london", "L AH1 N D AX N"),
    ("madrid", "M AX D R IH1 D"), ("monday", "M AH1 N D EY"), ("nina", "N IY1 N AX"), ("one", "W AH1 N"),
    ("onion", "AH1 N Y AX N"), ("open", "OW1 P AX N"), ("orange", "AO1 R IH N JH"), ("pencil", "P EH1 N S AX L"),
    ("peter", "P IY1 T ER"), ("pretty", "P R IH1 T IY"), ("put", "P UH1 T"), ("river", "R IH1 V ER"), ("ruth", "R UW1 TH"), ("sara", "S AA1 R AX"),
    ("some", "S AH1 M"), ("soup", "S UW1 P"), ("tehran", "T EH R AA1 N"), ("there", "DH EH R"), ("tired", "T AY1 ER D"),
    ("tomato", "T AX M EY1 T OW"), ("tomorrow", "T AX M AA1 R OW"), ("two", "T UW1"), ("uncle", "AH1 NG K AX L"),
    ("wear", "W EH1 R"), ("where", "W EH1 R"), ("woman", "W UH1 M AX N"), ("young", "Y AH1 NG"),
    // numbers
    ("zero", "Z IH1 R OW"), ("eleven", "IH L EH1 V AX N"), ("thirteen", "TH ER T IY1 N"), ("fourteen", "F AO R T IY1 N"),
    ("fifteen", "F IH F T IY1 N"), ("sixteen", "S IH K S T IY1 N"), ("seventeen", "S EH V AX N T IY1 N"),
    ("eighteen", "EY T IY1 N"), ("nineteen", "N AY N T IY1 N"), ("seventy", "S EH1 V AX N T IY"), ("ninety", "N AY1 N T IY"),
    ("hundred", "HH AH1 N D R AX D"), ("thousand", "TH AW1 Z AX N D"),
];
