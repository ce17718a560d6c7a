"""Texts that tell one way of tokenizing from another."""

from __future__ import annotations

__all__ = ["TEXTS"]

TEXTS: tuple[str, ...] = (
    "",
    *(
        " ",
        "  ",
        "   ",
        "\n",
        "\n\n\n",
        "\t",
        " \n ",
        "\r\n",
        "\u00a0",
        "\u3000x",
        "a\u2028b\u200bc",
    ),
    "The quick brown fox jumps over the lazy dog. The dog doesn't care.",
    "the cat and the dog saw the man on the hill in the rain",
    "  two leading spaces, then more   inside    and trailing   ",
    "def f(x):\n    return x + 1\n\n\nclass A:\n\tdef g(self) -> None:\n\t\tpass\n",
    "if (a >= b && c != d) { x[i] += 0x1F; } // done /* ... */ http://a.b/c?d=e#f",
    "I'm sure they've said we'll go; it's he'd who CAN'T, DON'T, WE'RE, O'Neill's '\u017f",
    "1 12 123 1234 12345 123456 1234567 3.14159 1,000,000 \u0661\u0662\u0663 \u00bd \u2163 x2y 2nd",
    "HelloWorld helloWorld HELLOWorld XMLHttpRequest snake_case iPhone McDonald Straße ÀÉÎ",
    "na\u00efve cafe\u0301 A\u030a \u212b \u1e9b\u0323 e\u0301e\u0301 \u0915\u094d\u0937\u093f",
    "\u4f60\u597d\uff0c\u4e16\u754c\u3002\u6211\u572812\u6708\u3002"
    " \u3053\u3093\u306b\u3061\u306f\u30ab\u30bf\u30ab\u30ca",
    "\uc548\ub155\ud558\uc138\uc694 \u1112\u1161\u11ab\u1100\u1173\u11af",
    "\u0645\u0631\u062d\u0628\u0627 \u0628\u0627\u0644\u0639\u0627\u0644\u0645"
    " \u05e9\u05dc\u05d5\u05dd \u05e2\u05d5\u05dc\u05dd",
    "\u041d\u0435\u0449\u043e \u043d\u0430 \u0411\u044a\u043b\u0433\u0430\u0440\u0441\u043a\u0438"
    " \u0395\u03bb\u03bb\u03ac\u03b4\u03b1",
    "\U0001f389 \U0001f469\u200d\U0001f469\u200d\U0001f467\u200d\U0001f466"
    " \U0001f3f4\u200d\u2620\ufe0f \U0001f1e9\U0001f1ea",
    "\U00013000\U0001d54f \ue000 \U0010ffff \x00\x7f\x85",
    "a\n\nb\n \n\t\nc  \n   d\r\n\r\ne \t f",
    "...!!! ??? ---==== ``` ''' \"\"\" $%^&* ~|<>+"
    " \u20ac\u00a3 \u201cquoted\u201d \u2014 \u2026/\n//\n",
)
