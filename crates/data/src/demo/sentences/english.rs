//! The English grammar.

use super::Grammar;

pub(super) const HELD_OUT: [&str; 3] = [
    "The old clock on the wall stopped at 4.",
    "Did you hear the birds sing in the garden?",
    "She closed the window, because the wind was cold.",
];

#[rustfmt::skip]
pub(super) const GRAMMAR: &Grammar = &[
    (
        "sentence",
        &[
            "{who} bought a {look} {thing} {past}.",
            "{who} bought {some} {fruits} at the {shop}.",
            "the {animal} {rested} {outside}.",
            "the {fur} {animal} {rested} {outside}.",
            "the {ride} to {city} leaves at {hour}.",
            "can you {favour}, please?",
            "please {task} before {hour}.",
            "where did {who} put the {thing}?",
            "where did {who} put the {look} {thing}?",
            "after {meal}, {who} {did}.",
            "when {weather}, {who} {does}.",
            "do you like {food} with {drink}?",
            "{child} has {some} {pets} at home.",
            "the {look} {thing} is {inside}.",
            "it was {degrees} degrees in {city} {past}.",
            "{who} wants to {plan} {future}.",
            "this {thing} costs {price} dollars, but that one is {judged}.",
            "{child} is {age} years old.",
            "did {who} {plan} {past}?",
            "there are {some} {things} {inside}.",
            "{name}, look at the {look} {thing}!",
            "if {if_weather}, we will {plan} {future}.",
            "{who} {did} {past}.",
        ],
    ),
    (
        "who",
        &[
            "my mother", "my father", "my sister", "my brother", "my friend", "my uncle", "my aunt",
            "our teacher", "the doctor", "the farmer", "the baker", "the driver", "the old man",
            "the young woman", "{name}",
        ],
    ),
    ("name", &["Anna", "Peter", "Sara", "David", "Nina", "Tom", "Lucy", "Ben", "Emma", "Jack"]),
    ("child", &["my sister", "my brother", "my friend", "{name}"]),
    (
        "look",
        &[
            "small", "big", "red", "green", "blue", "white", "black", "yellow", "brown", "old", "new",
            "little", "pretty", "heavy", "strange",
        ],
    ),
    ("fur", &["small", "big", "white", "black", "brown", "old", "little", "gray", "lazy", "tired"]),
    (
        "thing",
        &[
            "book", "lamp", "chair", "table", "basket", "hat", "coat", "kettle", "clock", "mirror",
            "bottle", "box", "bag", "carpet", "pencil", "letter", "key", "cup", "blanket", "picture",
        ],
    ),
    ("things", &["chairs", "books", "cups", "boxes", "letters", "pictures", "bottles", "lamps", "keys"]),
    (
        "past",
        &["yesterday", "this morning", "last night", "last week", "on Monday", "on Friday", "two days ago"],
    ),
    ("future", &["tomorrow", "next week", "on Sunday", "this evening", "next summer", "after school"]),
    ("some", &["2", "3", "4", "5", "6", "7", "8", "9", "10", "12"]),
    (
        "fruits",
        &["apples", "lemons", "melons", "bananas", "carrots", "oranges", "cherries", "onions", "tomatoes"],
    ),
    ("shop", &["market", "corner shop", "bakery", "farm", "station"]),
    ("animal", &["cat", "dog", "rabbit", "horse", "duck", "goat", "fox", "bird", "donkey", "turtle"]),
    ("pets", &["cats", "dogs", "rabbits", "ducks", "goats", "birds"]),
    ("rested", &["slept", "sat", "stood", "rested", "waited", "was hiding"]),
    (
        "outside",
        &[
            "under the tree", "in the garden", "behind the house", "on the wall", "near the river",
            "by the gate", "in the sun", "next to the road",
        ],
    ),
    (
        "inside",
        &[
            "on the table", "under the bed", "in the kitchen", "behind the door", "near the window",
            "in the blue box", "on the shelf", "by the fire",
        ],
    ),
    ("ride", &["train", "bus", "night train", "first bus"]),
    ("city", &["Paris", "London", "Madrid", "Berlin", "Tehran", "Dublin", "Boston", "Rome", "Oslo"]),
    ("hour", &["5", "6", "7", "8", "9", "10", "11"]),
    (
        "favour",
        &[
            "{task}", "speak more slowly", "help me with the boxes", "open the window", "cut the bread",
            "wait at the station", "turn off the lamp",
        ],
    ),
    (
        "task",
        &[
            "close the door", "bring a cup of tea", "read this letter", "wash the dishes",
            "call my brother", "feed the rabbit", "clean the table", "pack the bag", "lock the gate",
        ],
    ),
    ("meal", &["lunch", "dinner", "breakfast", "school", "work"]),
    (
        "did",
        &[
            "read a book", "went to the market", "washed the dishes", "played in the garden",
            "drank a glass of milk", "painted the fence", "walked to the river", "sang an old song",
            "wrote a long letter", "baked some bread", "cleaned the kitchen", "fixed the clock",
        ],
    ),
    ("weather", &["it rains", "it snows", "the sun shines", "the wind blows", "it gets dark", "it is cold"]),
    ("if_weather", &["it rains", "it is warm", "the sun shines", "it stays dry", "it gets late"]),
    (
        "does",
        &[
            "stays at home", "drinks hot tea", "goes to bed early", "sits by the fire", "makes soup",
            "takes the bus", "wears a thick coat", "reads in the kitchen", "sings a song",
        ],
    ),
    (
        "plan",
        &[
            "go to {city}", "visit {other}", "paint the fence", "plant a tree", "buy a new {thing}",
            "swim in the lake", "clean the house", "bake a cake", "sell the old {thing}",
            "walk to the river", "write to {other}",
        ],
    ),
    ("other", &["Helen", "Oscar", "Martin", "Ruth"]),
    ("food", &["bread", "rice", "fish", "soup", "cheese", "honey", "butter", "fresh fruit"]),
    ("drink", &["tea", "milk", "coffee", "water", "lemon juice"]),
    ("degrees", &["3", "8", "12", "15", "19", "21", "24", "28", "30", "33"]),
    ("price", &["5", "9", "13", "14", "16", "20", "25", "40", "60", "75"]),
    ("judged", &["too small", "much better", "very old", "not for sale", "cheap"]),
    ("age", &["6", "7", "8", "11", "17", "18", "22", "29", "31", "34"]),
];
