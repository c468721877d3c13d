//! Tests what the default cleaners produce where coqui-tts is wrong. Each correction is listed next to the fault it
//! corrects, which documents the differences between the two cleaners and detects changes in either.

use std::path::Path;

use myxtts_text::{coqui, languages};
use tokenizers::Tokenizer;

/// (raw, correct reading, coqui-tts's reading; `None` where it raises and the sample is lost).
type Correction = (&'static str, &'static str, Option<&'static str>);

fn check(language: &str, corrections: &[Correction]) {
    for (raw, right, faulty) in corrections {
        assert_eq!(languages::clean(raw, language).as_deref(), Some(*right), "{language} {raw:?}, default");
        assert_eq!(coqui::clean(raw, language).ok().as_deref(), *faulty, "{language} {raw:?}, coqui");
    }
}

#[test]
fn czech_ordinals_do_not_raise() {
    check(
        "cs",
        &[
            (
                "Stalo se to v roce 1995. Potom nic.",
                "stalo se to v roce tisíc devět set devadesát pět. potom nic.",
                None,
            ),
            ("Byl 1. květen.", "byl první květen.", None),
            ("Přijde 3. května.", "přijde třetího května.", None),
            ("Je to 21. 12. 2012.", "je to dvacátého prvního prosince dva tisíce dvanáct.", None),
        ],
    );
}

#[test]
fn german_number_words_are_lower_case() {
    check(
        "de",
        &[
            ("3,50€", "drei euro und fünfzig cent", Some("drei Euro und fünfzig Cent")),
            ("$20!", "zwanzig dollar!", Some("zwanzig Dollar!")),
            ("£1", "ein pfund", Some("ein Pfund")),
            ("12,5 Grad", "zwölf komma fünf grad", Some("zwölf Komma fünf grad")),
            ("2.000.000 Leute", "zwei millionen leute", Some("zwei Millionen leute")),
        ],
    );
}

#[test]
fn currency_sign_may_be_separated_by_a_space() {
    check("de", &[("20 € bitte", "zwanzig euro bitte", Some("zwanzig € bitte"))]);
    check("fr", &[("20 € !", "vingt euros!", Some("vingt € !"))]);
    check("es", &[("€ 20", "veinte euros", Some("€ veinte"))]);
    check("it", &[("20 £", "venti sterline", Some("venti sterlina"))]);
    check("nl", &[("20 EUR", "twintig euro", Some("twintig eur"))]);
}

#[test]
fn a_currency_sign_belongs_to_the_number_it_touches() {
    check("de", &[("25 €8", "fünfundzwanzig acht euro", Some("fünfundzwanzig acht Euro"))]);
}

#[test]
fn inverted_exclamation_euro_and_ordinal_signs_are_always_read() {
    check(
        "es",
        &[
            ("¡Hola! Cuesta € mucho.", "hola! cuesta euros mucho.", Some("¡hola! cuesta € mucho.")),
            ("El nº 5 y la ª.", "el número cinco y la.", Some("el nº cinco y la ª.")),
        ],
    );
    check("it", &[("Il º e la ª", "il e la", Some("il º e la ª"))]);
}

#[test]
fn arabic_money_is_not_all_riyals() {
    check(
        "ar",
        &[
            ("$20", "عشرون دولاراً", Some("عشرون ريالاً")),
            ("£5", "خمسة جنيهات إسترلينية", Some("خمسة ريالات")),
            ("€100", "مائة يورو", Some("مائة ريال")),
            ("$2", "دولاران", Some("اثنان ريالان")),
            ("$3,50", "ثلاثة دولارات و خمسون سنتاً", Some("ثلاثة ريالات و خمسون هللة")),
        ],
    );
}

#[test]
fn arabic_numbers_keep_their_endings_and_their_fractions() {
    check(
        "ar",
        &[
            ("200", "مئتان", Some("مئتا")),
            ("2000", "ألفان", Some("ألفا")),
            ("12,5", "اثنا عشر فاصلة خمسة", Some("اثنا عشر , خمسون")),
            ("٢٠", "عشرون", Some("٢٠")),
        ],
    );
}

#[test]
fn turkish_money_is_read() {
    check(
        "tr",
        &[
            ("20€", "yirmi avro", Some("yirmi€")),
            ("$5,50", "beş dolar elli sent", Some("dolar beş,elli")),
            ("£3", "üç sterlin", Some("sterlin üç")),
        ],
    );
}

#[test]
fn turkish_decimals_are_read_as_separate_words() {
    check(
        "tr",
        &[
            ("12,5", "on iki virgül beş", Some("oniki,beş")),
            ("1.000 lira", "bin lira", Some("bin lira")),
            ("1995", "bin dokuz yüz doksan beş", Some("bindokuzyüzdoksanbeş")),
            ("121.345", "yüz yirmi bir bin üç yüz kırk beş", Some("yüzyirmibinüçyüzkırkbeş")),
            ("14% ve %14", "yüzde on dört ve yüzde on dört", Some("ondört yüzde ve yüzde ondört")),
        ],
    );
}

#[test]
fn turkish_dotted_and_dotless_i() {
    check("tr", &[("IŞIK İSTANBUL", "ışık istanbul", Some("işik istanbul"))]);
}

#[test]
fn turkish_sentence_end_is_not_an_ordinal() {
    check(
        "tr",
        &[
            ("Saat 5. Sonra gel.", "saat beş. sonra gel.", Some("saat beşinci sonra gel.")),
            ("2. kat", "ikinci kat", Some("ikinci kat")),
        ],
    );
}

#[test]
fn polish_and_russian_read_pounds() {
    check("pl", &[("£5", "pięć funtów", Some("funt pięć")), ("£2", "dwa funty", Some("funt dwa"))]);
    check("ru", &[("£5", "пять фунтов", Some("фунт пять"))]);
}

#[test]
fn czech_reads_dollars_and_pounds() {
    check(
        "cs",
        &[
            ("$20", "dvacet dolarů", Some("dolar dvacet")),
            ("£3", "tři libry", Some("libra tři")),
            ("2€", "dvě eura", Some("dva euro")),
        ],
    );
}

#[test]
fn an_unknown_currency_does_not_disable_the_others() {
    check("pl", &[("£5 i 5€", "pięć funtów i pięć euro", Some("funt pięć i pięć€"))]);
    check("ru", &[("£5 и $5", "пять фунтов и пять долларов", Some("фунт пять и доллар пять"))]);
}

#[test]
fn decimals_keep_their_zero() {
    check("de", &[("2.0", "zwei komma null", Some("zwei"))]);
    check("es", &[("2,0", "dos coma cero", Some("dos"))]);
    check("pl", &[("2,0", "dwa przecinek zero", Some("dwa przecinek zero zero"))]);
    check("fr", &[("12,50", "douze virgule cinq zéro", Some("douze virgule cinq"))]);
}

#[test]
fn arbitrary_characters_are_not_thousands_separators() {
    check(
        "de",
        &[(
            "107.8686818",
            "einhundertsieben komma acht sechs acht sechs acht eins acht",
            Some(
                "eine Milliarde achtundsiebzig Millionen sechshundertsechsundachtzigtausendachthundertachtzehn",
            ),
        )],
    );
}

#[test]
fn ordinals_agree_with_their_gender() {
    check("pt", &[("A 1ª vez", "a primeira vez", Some("a primeiro vez"))]);
    check(
        "es",
        &[
            ("La 1ª vez", "la primera vez", Some("la primero vez")),
            ("el 1er día", "el primer día", Some("el primero día")),
        ],
    );
    check("it", &[("La 1ª volta", "la prima volta", Some("la primo volta"))]);
    check("fr", &[("La 1re fois", "la première fois", Some("la premier fois"))]);
    check(
        "ru",
        &[
            ("3-я глава", "третья глава", Some("третий глава")),
            ("3-го мая", "третьего мая", Some("третий мая")),
        ],
    );
}

#[test]
fn german_ordinals_take_their_endings_and_leave_sentence_ends_alone() {
    check(
        "de",
        &[
            ("Am 3. Mai", "am dritten mai", Some("am dritte mai")),
            ("im 2. Stock", "im zweiten stock", Some("im zweite stock")),
            ("die 2. Karte", "die zweite karte", Some("die zweite karte")),
            ("ein 2. Versuch", "ein zweiter versuch", Some("ein zweite versuch")),
            (
                "Es waren 20. Danach 30.",
                "es waren zwanzig. danach dreißig.",
                Some("es waren zwanzigste danach dreißigste"),
            ),
        ],
    );
}

#[test]
fn ordinal_words_are_spelled_right() {
    check("fr", &[("le 80e", "le quatre-vingtième", Some("le quatre-vingtsième"))]);
    check("es", &[("el 11º", "el undécimo", Some("el décimoprimero"))]);
    check("ru", &[("20001-й", "двадцать тысяч первый", Some("двадцатый тысяч первый"))]);
}

#[test]
fn cardinal_words_are_spelled_right() {
    check(
        "it",
        &[("118", "centodiciotto", Some("centodicotto")), ("123", "centoventitré", Some("centoventitre"))],
    );
    check("es", &[("21.000", "veintiún mil", Some("veintiuno mil"))]);
    check("cs", &[("200", "dvě stě", Some("dvěstě"))]);
    check("hu", &[("102", "százkettő", Some("százkét"))]);
    check("de", &[("101.000", "einhunderteintausend", Some("einhunderteinstausend"))]);
}

#[test]
fn whole_amounts_keep_their_units() {
    check("pt", &[("21€", "vinte e um euros", Some("vinte"))]);
}

#[test]
fn percent_and_degrees_agree_and_touch_punctuation() {
    check("de", &[("5%.", "fünf prozent.", Some("fünf prozent ."))]);
    check(
        "pt",
        &[
            ("25°.", "vinte e cinco graus.", Some("vinte e cinco graus .")),
            ("1°", "um grau", Some("um graus")),
        ],
    );
    check(
        "ru",
        &[(
            "21%, 1°!",
            "двадцать один процент, один градус!",
            Some("двадцать один процентов , один градус !"),
        )],
    );
    check(
        "cs",
        &[
            ("14%!", "čtrnáct procent!", Some("čtrnáct procento !")),
            ("2%", "dvě procenta", Some("dva procento")),
        ],
    );
    check("pl", &[("5°", "pięć stopni", Some("pięć stopnie"))]);
    check("it", &[("25°C.", "venticinque gradi celsius.", Some("venticinquesimoc."))]);
    check("nl", &[("1°", "één graad", Some("één graden"))]);
}

#[test]
fn spanish_decimal_comma_is_read_as_comma() {
    check("es", &[("36,6", "treinta y seis coma seis", Some("treinta y seis punto seis"))]);
}

#[test]
fn times_are_read() {
    check("de", &[("um 14:30 Uhr", "um vierzehn uhr dreißig", Some("um vierzehn:dreißig uhr"))]);
    check("fr", &[("à 14h30", "à quatorze heures trente", Some("à quatorzehtrente"))]);
    check("es", &[("a la 1:05", "a la una y cinco", Some("a la uno:cinco"))]);
    check("pl", &[("o 14:30", "o czternastej trzydzieści", Some("o czternaście:trzydzieści"))]);
    check("tr", &[("14:30", "on dört otuz", Some("ondört:otuz"))]);
}

#[test]
fn dates_and_years_are_read() {
    check(
        "es",
        &[(
            "03/05/1999",
            "tres de mayo de mil novecientos noventa y nueve",
            Some("tres/cinco/mil novecientos noventa y nueve"),
        )],
    );
    check("de", &[("1999", "neunzehnhundertneunundneunzig", Some("eintausendneunhundertneunundneunzig"))]);
    check(
        "ru",
        &[(
            "в 1995 году",
            "в тысяча девятьсот девяносто пятом году",
            Some("в одна тысяча девятьсот девяносто пять году"),
        )],
    );
    check("pl", &[("3 maja", "trzeciego maja", Some("trzy maja"))]);
}

#[test]
fn telephone_numbers_keep_their_zeros() {
    check("de", &[("0199", "null eins neun neun", Some("einhundertneunundneunzig"))]);
}

#[test]
fn numbers_are_not_glued_to_letters() {
    check("de", &[("20kg", "zwanzig kg", Some("zwanzigkg"))]);
    check("it", &[("il 1° maggio", "il primo maggio", Some("il primo maggio"))]);
}

#[test]
fn numbers_past_the_scale_words_are_spelled_out() {
    let digits = "1234567890".repeat(5);
    let said = languages::clean(&digits, "es").expect("Spanish has a table");
    assert!(said.starts_with("uno dos tres cuatro") && said.split(' ').count() == 50, "{said}");
    assert!(coqui::clean(&digits, "es").is_err());
}

/// None of the golden sentences has an unknown token after the default cleaner, even those that do after coqui's.
#[test]
fn golden_sentences_have_no_unknown_token() {
    // Always our own copy: other goldens may contain characters that are in no XTTS vocabulary.
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../testdata/goldens");
    let vocabulary = folder.join("tokenizer/vocab.json");
    let tokenizer = Tokenizer::from_file(&vocabulary).expect("vocab.json is a tokenizer");
    let unknown = tokenizer.token_to_id("[UNK]").expect("the vocabulary has an unknown token");
    let cases = std::fs::read_to_string(folder.join("tokenizer/cases.json")).expect("the goldens have cases");
    let cases: Vec<serde_json::Value> = serde_json::from_str(&cases).expect("cases.json is JSON");
    let mut corrected = 0;
    for case in &cases {
        let (language, raw) =
            (case["language"].as_str().expect("a code"), case["raw"].as_str().expect("a text"));
        let Some(cleaned) = languages::clean(raw, language) else { continue };
        let text = format!("[{language}]{cleaned}").replace(' ', "[SPACE]");
        let encoding = tokenizer.encode(text, false).expect("the vocabulary encodes any text");
        assert!(
            !encoding.get_ids().contains(&unknown),
            "{language} {cleaned:?}: {:?}",
            encoding.get_tokens()
        );
        corrected += 1;
    }
    assert!(corrected > 0);
}
