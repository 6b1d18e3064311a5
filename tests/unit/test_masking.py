"""Masking of secrets: what goes, what stays, and that it is a function of the text (§8, §14)."""

import base64
import itertools
import json
import random
from concurrent.futures import ThreadPoolExecutor
from importlib import metadata
from pathlib import Path

import pytest

from optchat.masking import MASK_VERSION, mask, mask_part
from tests.harness.planted import Planted, look_alikes, planted

SEED = 20261130


def _numbered(text: str) -> str:
    return "\n".join(f"{i:5}\t{line}" for i, line in enumerate(text.splitlines(), 1))


@pytest.mark.parametrize("shape", [str, json.dumps, _numbered], ids=["text", "json", "numbered"])
def test_no_planted_secret_is_left_whatever_it_stands_in(shape):
    left = [
        (p.kind, shape(p.text))
        for p in planted(SEED, 240)
        if any(n in mask(shape(p.text)) for n in p.needles)
    ]
    assert left == []


def test_no_part_of_a_secret_is_left():
    for secret in planted(SEED + 1, 120):
        masked = mask(secret.text)
        for needle in secret.needles:
            core = needle[8:]  # the form of a token may stay, as a word about it would have it
            assert not any(core[i : i + 8] in masked for i in range(len(core) - 7)), secret.kind


def test_a_secret_of_a_kind_is_masked_by_the_same_words_each_time():
    tokens = {mask(p.text) for p in planted(SEED, 120) if p.kind == "github token"}
    assert tokens == {"git clone failed with the token [masked: github pat] in the address"}


def test_look_alikes_survive_whole():
    texts = look_alikes(SEED)
    assert len(texts) == 40
    assert [text for text, _ in texts if mask(text) != text] == []


def test_masking_twice_is_masking_once_also_where_secrets_touch():
    rng = random.Random(SEED)
    secrets = planted(SEED, 96)
    for _ in range(200):
        some = rng.sample(secrets, 4)
        text = rng.choice(("", " ", "\n", "=", "'")).join(s.text for s in some)
        text += rng.choice(("", "é\ud83d", "\0", "\ufeff", "[masked: key]", "[masked: "))
        once = mask(text)
        assert mask(once) == once, text


@pytest.mark.parametrize(
    "around", ["\0", "\ufeff", "\ud800", "\u202e", "🔑", "é", "\r\n", "a\0b\0c\0"]
)
def test_bytes_of_other_encodings_move_no_mask(around):
    secret = _of("github token")
    text = f"{around}{secret.text}{around} after {around}"
    masked = mask(text)
    assert masked == text.replace(secret.needles[0], "[masked: github pat]")


def test_the_parts_of_a_text_are_the_text_wherever_it_is_cut():
    rng = random.Random(SEED)
    for _ in range(150):
        some = rng.sample(planted(SEED, 48), 3)
        text = rng.choice(("\n", " é ", "=", "🔑")).join(s.text for s in some)
        data = text.encode()
        cuts = sorted({0, len(data), *(rng.randrange(len(data)) for _ in range(4))})
        cuts = [c for c in cuts if c == len(data) or data[c] & 0xC0 != 0x80]
        parts = [mask_part(data, a, b)[0] for a, b in itertools.pairwise(cuts)]
        assert "".join(parts) == mask(text)


def test_a_text_without_secrets_is_the_same_object():
    text = "we chose NATS because Kafka was ruled out: see docs/brokers.md, commit " + "ab12" * 10
    assert mask(text) is text


def test_a_private_key_that_was_cut_off_is_masked_as_far_as_it_goes():
    secret = _of("private key")
    for text in (secret.text[:400], json.dumps(secret.text[:400])):
        assert not any(line[:40] in mask(text) for line in secret.needles)


def test_a_comment_that_tells_scanners_to_look_away_is_not_heeded():
    secret = _of("github token")
    for word in ("gitleaks:allow", "kingfisher:ignore", "betterleaks:allow", "nosec"):
        assert secret.needles[0] not in mask(f"{secret.text} # {word}")


def test_a_secret_in_base64_is_masked_with_it():
    secret = _of("github token")
    coded = base64.b64encode(f"token: {secret.needles[0]}".encode()).decode()
    assert coded not in mask(f"data:\n  auth: {coded}\n")


def test_threads_that_mask_at_once_agree():
    texts = [p.text for p in planted(SEED, 48)] * 8
    expected = [mask(text) for text in texts]
    with ThreadPoolExecutor(8) as pool:
        assert list(pool.map(mask, texts)) == expected


def test_the_version_moves_with_the_detector_and_with_our_rules():
    ours, _, theirs = MASK_VERSION.partition("/")
    assert int(ours) >= 1
    assert theirs == metadata.version("kingfisher-secret-scanner")


def test_no_planted_secret_stands_in_the_repository():
    source = Path(__file__).parents[1] / "harness" / "planted.py"
    text = source.read_text()
    assert mask(text) == text


def _of(kind: str) -> Planted:
    return next(p for p in planted(SEED, 12) if p.kind == kind)
