"""Our JSON reader reads every legal text, and refuses the rest with a reason and a path."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from enum import StrEnum
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from adjourn.schemas.errors import MalformedJsonError, TooLargeError
from adjourn.schemas.strict_json import (
    MAX_DEPTH,
    MAX_NUMBER_DIGITS,
    MAX_PATH,
    REPLACEMENT,
    canonical,
    check,
    clean,
    clean_text,
    digest,
    dumps,
    parse,
    pointer,
    short_pointer,
)

DEEP = 64

clean_characters = st.characters(exclude_categories=["Cs"], exclude_characters="\x00")
any_characters = st.characters()  # NUL and lone surrogates included


def json_values(characters: st.SearchStrategy[str], *, finite: bool = True) -> st.SearchStrategy[Any]:
    text = st.text(characters, max_size=8)
    floats = st.floats(allow_nan=not finite, allow_infinity=not finite)
    scalars = st.none() | st.booleans() | st.integers() | floats | text
    return st.recursive(
        scalars,
        lambda inner: st.lists(inner, max_size=4) | st.dictionaries(text, inner, max_size=4),
        max_leaves=12,
    )


def read(data: bytes | str, max_bytes: int = 100_000, max_depth: int = DEEP) -> Any:
    return parse(data, max_bytes=max_bytes, max_depth=max_depth)


def refusal(data: bytes | str) -> MalformedJsonError:
    with pytest.raises(MalformedJsonError) as caught:
        read(data)
    return caught.value


@given(json_values(clean_characters))
def test_reads_back_every_value_of_the_standard_writer(value: Any) -> None:
    assert read(json.dumps(value)) == value
    assert read(json.dumps(value, ensure_ascii=False, indent=1).encode()) == value
    assert read(dumps(value)) == value
    check(value, max_depth=DEEP)


@given(st.text() | st.binary())
def test_any_input_is_read_or_refused_and_nothing_else(data: bytes | str) -> None:
    try:
        value = read(data)
    except MalformedJsonError:
        return
    check(value, max_depth=DEEP)


# Without high surrogates: escaped, two halves are one character, which as Python text they are not.
unpaired_characters = st.characters(exclude_characters=[chr(code) for code in range(0xD800, 0xDC00)])


@given(json_values(unpaired_characters, finite=False))
def test_the_door_and_the_check_refuse_the_same_values(value: Any) -> None:
    def refused_at(action: Callable[[], Any]) -> str | None:
        try:
            action()
        except MalformedJsonError as error:
            return error.path
        return None

    assert refused_at(lambda: read(json.dumps(value))) == refused_at(lambda: check(value, max_depth=DEEP))


@pytest.mark.parametrize(
    ("data", "reason", "path"),
    [
        (b'{"a":1,"a":2}', "duplicate key", "/a"),
        (b'{"x":[0,{"a/b":1,"a/b":1}]}', "duplicate key", "/x/1/a~1b"),
        (b'{"a":{"b":1,"b":1},"a":2}', "duplicate key", "/a"),
        (b"NaN", "NaN is not JSON", ""),
        (b"[Infinity]", "Infinity is not JSON", "/0"),
        (b'{"a":-Infinity}', "-Infinity is not JSON", "/a"),
        (b'{"a":[1,1e999]}', "number too large", "/a/1"),
        (b"-1e999", "number too large", ""),
        (rb'["\ud800"]', "lone surrogate", "/0"),
        (rb'["\uDFFF\ud800"]', "lone surrogate", "/0"),
        (rb'{"a":{"\ud800":1}}', "lone surrogate in a key", "/a/" + REPLACEMENT),
        (rb'{"a":"\u0000"}', "NUL character", "/a"),
        (rb'{"\u0000":1}', "NUL character in a key", "/" + REPLACEMENT),
        (b"1" * (MAX_NUMBER_DIGITS + 1), "integer of more than", ""),
        (b"[-" + b"9" * 5000 + b"]", "integer of more than", "/0"),
        (b"1 2", "Extra data", ""),
        (b"{}]", "Extra data", ""),
        (b"\xef\xbb\xbf1", "byte order mark", ""),
        ("\ufeff1", "byte order mark", ""),
        (b'"\xff"', "not UTF-8 at byte 1", ""),
        (b'"\xed\xa0\x80"', "not UTF-8", ""),  # a surrogate written as UTF-8
        ('"\ud800"', "lone surrogate", ""),
        (b"", "Expecting value", ""),
        (b'"a\nb"', "control character", ""),
        (b'"a\x00b"', "control character", ""),
        (b"{'a':1}", "Expecting property name", ""),
        (b"[1,]", "", ""),
        (b"[01]", "", ""),
        (b'["a', "Unterminated string", ""),
    ],
)
def test_refuses_with_reason_and_path(data: bytes | str, reason: str, path: str) -> None:
    error = refusal(data)
    assert reason in error.reason
    assert error.path == path


@pytest.mark.parametrize("opening", ["[", '{"a":', '[{"a":'])
@pytest.mark.parametrize("levels", [DEEP + 1, 10_000, 40_000])
def test_deep_documents_are_refused_not_crashed_on(opening: str, levels: int) -> None:
    document = opening * levels
    assert "nested deeper" in parse_refusal(document).reason
    closing = "".join("]" if each == "[" else "}" for each in reversed(document) if each in "[{")
    assert "nested deeper" in parse_refusal(document + "1" + closing).reason


def parse_refusal(document: str) -> MalformedJsonError:
    with pytest.raises(MalformedJsonError) as caught:
        parse(document, max_bytes=10_000_000, max_depth=DEEP)
    return caught.value


def test_depth_counts_containers_and_not_brackets_in_text() -> None:
    assert read("[" * DEEP + "]" * DEEP) is not None
    assert refusal("[" * (DEEP + 1) + "]" * (DEEP + 1))
    assert read(json.dumps("[{" * 5_000)) == "[{" * 5_000
    assert read(json.dumps('\\"[' * 5_000)) == '\\"[' * 5_000
    assert read("[" + "[]," * 5_000 + "1]")[-1] == 1


def test_check_counts_depth_as_the_door_does() -> None:
    nested: Any = 1
    for _ in range(DEEP):
        nested = [nested]
    check(nested, max_depth=DEEP)
    with pytest.raises(MalformedJsonError, match="nested deeper"):
        check([nested], max_depth=DEEP)
    endless: list[Any] = []
    endless.append(endless)
    with pytest.raises(MalformedJsonError, match="nested deeper"):
        check(endless, max_depth=DEEP)


def test_size_is_judged_in_bytes_before_anything_else() -> None:
    assert parse('"é"', max_bytes=4, max_depth=1) == "é"
    for data in ('"éé"', '"éé"'.encode(), b"\xff" * 6):
        with pytest.raises(TooLargeError) as caught:
            parse(data, max_bytes=5, max_depth=1)
        assert (caught.value.size, caught.value.limit) == (6, 5)


def test_a_huge_text_is_refused_without_being_encoded() -> None:
    class Watched(str):
        __slots__ = ()

        def encode(self, *_args: Any, **_options: Any) -> bytes:
            raise AssertionError("copied a text that is too long to be read")

    with pytest.raises(TooLargeError):
        parse(Watched("x" * 1001), max_bytes=1000, max_depth=1)


def test_an_unterminated_string_of_escapes_costs_one_pass() -> None:
    # Brackets make the depth be measured. Each escaped quote could start the string anew: then
    # this would be 10^10 steps, and the timeout of the suite would end it.
    assert "Unterminated" in refusal("[" * (DEEP - 1) + "[]," + '"' + '\\"' * 45_000).reason


def test_literal_backslash_u0000_is_ordinary_text() -> None:
    literal = "\\u0000"
    assert read(json.dumps(literal)) == literal
    assert clean(literal) == literal
    assert clean({literal: [literal]}) == {literal: [literal]}


def test_surrogate_pairs_are_characters() -> None:
    assert read(rb'"\ud83d\ude00"') == "😀"
    assert clean_text("\ud83d\ude00") == "😀"


class Color(StrEnum):
    RED = "red"


@pytest.mark.parametrize(
    ("value", "reason", "path"),
    [
        ([1, (2,)], "tuple is not a JSON value", "/1"),
        ({"a": Color.RED}, "Color is not a JSON value", "/a"),
        ({"a": {1: 2}}, "a key is not text but int", "/a"),
        ({Color.RED: 2}, "a key is not text but Color", ""),
        ([math.nan], "NaN", "/0"),
        ([[-math.inf]], "infinity", "/0/0"),
        ([10**MAX_NUMBER_DIGITS], "digits", "/0"),
        ({"a\ud800": 1}, "lone surrogate in a key", "/a" + REPLACEMENT),
        (b"bytes", "bytes is not a JSON value", ""),
        ({"a": object()}, "object is not a JSON value", "/a"),
    ],
)
def test_check_names_what_is_no_json_value(value: Any, reason: str, path: str) -> None:
    with pytest.raises(MalformedJsonError) as caught:
        check(value, max_depth=DEEP)
    assert reason in caught.value.reason
    assert caught.value.path == path


def test_an_error_does_not_carry_a_long_key() -> None:
    error = refusal(json.dumps({"k" * 50_000: {"\x00": 1}}))
    assert len(error.path) == MAX_PATH


@given(json_values(any_characters, finite=False))
def test_clean_makes_every_value_acceptable(value: Any) -> None:
    cleaned = clean(value)
    check(cleaned, max_depth=DEEP)
    assert clean(cleaned) == cleaned
    dumps(cleaned).encode("utf-8")


@given(json_values(clean_characters))
def test_clean_leaves_a_good_value_as_it_is(value: Any) -> None:
    assert clean(value) == value


@given(st.text(any_characters))
def test_clean_text_replaces_one_for_one(text: str) -> None:
    cleaned = clean_text(text)
    assert "\x00" not in cleaned
    cleaned.encode("utf-8")
    if all(not "\ud800" <= each <= "\udfff" for each in text):
        assert cleaned == text.replace("\x00", REPLACEMENT)


@given(st.lists(st.text(st.sampled_from(["a", "\x00", "\ud800", REPLACEMENT, "~", "2"]), max_size=3), unique=True))
def test_clean_loses_no_key(keys: list[str]) -> None:
    cleaned = clean({key: number for number, key in enumerate(keys)})
    assert isinstance(cleaned, dict)
    assert sorted(map(str, cleaned.values())) == sorted(map(str, range(len(keys))))
    for number, key in enumerate(keys):
        if clean_text(key) == key:
            assert cleaned[key] == number


def test_colliding_keys_are_numbered_and_clean_ones_keep_their_name() -> None:
    value = {"a\x00": 1, f"a{REPLACEMENT}": 2, "a\ud800": 3, f"a{REPLACEMENT}~2": 4}
    assert clean(value) == {
        f"a{REPLACEMENT}~3": 1,
        f"a{REPLACEMENT}": 2,
        f"a{REPLACEMENT}~4": 3,
        f"a{REPLACEMENT}~2": 4,
    }


def test_numbers_that_json_lacks_become_null() -> None:
    assert clean([math.nan, math.inf, -math.inf, 10**5000, 1.5, True]) == [None, None, None, None, 1.5, True]


def test_what_is_nested_too_deep_is_replaced_not_recursed_into() -> None:
    nested: Any = "core"
    for _ in range(10_000):
        nested = [nested]
    cleaned: Any = clean(nested)
    levels = 0
    while isinstance(cleaned, list):
        [cleaned] = cleaned
        levels += 1
    assert (levels, cleaned) == (MAX_DEPTH, REPLACEMENT)


@pytest.mark.parametrize("value", [math.nan, [math.inf], "\ud800", {"\ud800": 1}, object(), {(1,): 2}])
def test_dumps_refuses_what_is_no_json_value(value: Any) -> None:
    for write in (dumps, canonical, digest):
        with pytest.raises(MalformedJsonError):
            write(value)


def test_dumps_is_compact_and_keeps_order_and_text() -> None:
    assert dumps({"b": [1, 2.5, None, True], "a": "é\u2028\x00"}) == '{"b":[1,2.5,null,true],"a":"é\u2028\\u0000"}'


@given(json_values(clean_characters))
def test_digest_does_not_depend_on_key_order_or_number_form(value: Any) -> None:
    def turned(part: Any) -> Any:
        if isinstance(part, dict):
            return {key: turned(part[key]) for key in reversed(part)}
        if isinstance(part, list):
            return [turned(each) for each in part]
        if type(part) is int and abs(part) < 2**53:
            return float(part)
        return part

    assert digest(turned(value)) == digest(value)
    assert digest(read(dumps(value))) == digest(value)


@given(json_values(clean_characters), json_values(clean_characters))
def test_equal_digests_mean_equal_values(one: Any, other: Any) -> None:
    if digest(one) == digest(other):
        assert one == other


def test_digest_tells_apart_what_python_does_not() -> None:
    values: list[Any] = [0, False, None, "", "0", [], {}, [0], "null", 1, True]
    digests = [digest(value) for value in values]
    assert len(set(digests)) == len(digests)


def test_digest_is_pinned() -> None:
    # Stored digests outlive a release: this one may never change.
    assert canonical({"b": 1.0, "a": [1e22, -0.0, 0.1, "é"]}) == (
        '{"a":[10000000000000000000000,0,0.1,"é"],"b":1}'.encode()
    )
    assert digest({"a": 1}) == "015abd7f5cc57a2dd94b7590f04ad8084273905ee33ec5cebeae62276a97f862"


def test_pointer_escapes() -> None:
    assert pointer([]) == ""
    assert pointer(["a/b", "m~n", 0, ""]) == "/a~1b/m~0n/0/"
    assert short_pointer(["a\x00"]) == "/a" + REPLACEMENT
