"""Makes seeded random strings for tokenizer tests, the same strings as fuzz.cpp."""

MASK = (1 << 64) - 1

WORDS = [
    "the", "unaffable", "Tokenization", "HELLO", "don't", "U.S.A.", "3.14159", "e-mail", "naïve",
    "Ångström", "İstanbul", "STRASSE", "straße", "ΟΔΥΣΣΕΥΣ", "Ǆungla", "ﬁne", "x²", "½", "¿qué?",
    "antidisestablishmentarianism", "a", "I", "##ing", "re##set", "Ⅷ", "№", "“quoted”", "日本語", "서울",
]
SPECIALS = [
    "[CLS]", "[SEP]", "[PAD]", "[UNK]", "[MASK]", "[cls]", "[ MASK ]", "[MASK", "MASK]", "[[MASK]]",
    "[UNK][SEP]", "[unused7]",
]
SPACES = [" ", " ", " ", " ", "", "", "", "\t", "\n", "\r\n", "\u00a0", "\u3000", "\u2028", "  "]
CONTROLS = [0x00, 0x0B, 0x0C, 0x7F, 0x85, 0xAD, 0x200B, 0x200D, 0x200E, 0x202E, 0x2060, 0xFEFF,
            0xFFFD, 0xFFFE, 0xFFFF, 0x600, 0x890, 0x110BD, 0x110CD, 0xE0001, 0xE0061]
MARKS = [(0x300, 0x36F), (0x483, 0x487), (0x591, 0x5C7), (0x64B, 0x65F), (0x93C, 0x94D),
         (0xE31, 0xE4E), (0x1AB0, 0x1ACE), (0x1BAA, 0x1BAD), (0x1DC0, 0x1DFF), (0x20D0, 0x20F0),
         (0x302A, 0x302F), (0x3099, 0x309A), (0xFE00, 0xFE2F), (0x1D165, 0x1D172)]
CJK = [(0x3400, 0x4DBF), (0x4E00, 0x9FFF), (0xF900, 0xFAFF), (0x20000, 0x2A6DF),
       (0x2A700, 0x2B91F), (0x2F800, 0x2FA1F), (0x30000, 0x3134A)]
EMOJI = [(0x1F300, 0x1F64F), (0x1F680, 0x1F6FF), (0x1F900, 0x1FAFF), (0x2600, 0x27BF),
         (0x1F1E6, 0x1F1FF)]
RTL = [(0x5D0, 0x5F4), (0x600, 0x6FF), (0x750, 0x77F), (0x8A0, 0x8FF), (0xFB1D, 0xFDFF),
       (0x1E900, 0x1E95F)]
LETTERS = [(0xA1, 0x24F), (0x370, 0x3FF), (0x400, 0x52F), (0x1E00, 0x1FFF), (0x2100, 0x218B),
           (0x10A0, 0x10FF), (0x13A0, 0x13FD), (0xA640, 0xA7FF)]
KANA = [(0xAC00, 0xD7A3), (0x1100, 0x11FF), (0x3000, 0x30FF), (0xFF00, 0xFFEF)]
NEW = [(0x10D00, 0x11FFF), (0x1E000, 0x1E9FF), (0x2E00, 0x2E5D), (0x12F90, 0x13460),
       (0x16E40, 0x16FF1), (0x1CF00, 0x1CFC3)]
PRIVATE = [(0xE000, 0xF8FF), (0xF0000, 0xFFFFD), (0x100000, 0x10FFFD)]


class Random:
    """SplitMix64 (Steele, Lea, Flood 2014)."""

    def __init__(self, seed):
        self.state = seed & MASK

    def below(self, n):
        self.state = (self.state + 0x9E3779B97F4A7C15) & MASK
        z = self.state
        z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & MASK
        z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & MASK
        return (z ^ (z >> 31)) % n


def fuzz_string(seed):
    random = Random(seed)
    out = []

    def pick(items):
        return items[random.below(len(items))]

    def ranged(ranges):
        first, last = pick(ranges)
        return chr(first + random.below(last - first + 1))

    for _ in range(1 + random.below(12)):
        kind = random.below(15)
        if kind == 0:
            code_point = random.below(0x110000 - 0x800)
            out.append(chr(code_point if code_point < 0xD800 else code_point + 0x800))
        elif kind == 1:
            out.append(chr(ord("A") + random.below(58)))
            for _ in range(1 + random.below(6)):
                out.append(ranged(MARKS))
        elif kind == 2:
            out.append(pick(SPECIALS))
        elif kind == 3:
            out.append(chr(pick(CONTROLS)))
        elif kind == 4:
            if random.below(8) == 0:
                for _ in range(90 + random.below(130)):
                    out.append(chr(ord("a") + random.below(26)))
        elif kind == 5:
            out.append(chr(0x21 + random.below(0x5E)))
        elif kind <= 8:
            out.append(pick(WORDS))
        else:
            ranges = [CJK, EMOJI, RTL, LETTERS, KANA, NEW + PRIVATE][kind - 9]
            for _ in range(1 + random.below(5)):
                out.append(ranged(ranges))
        out.append(pick(SPACES))
    return "".join(out)
