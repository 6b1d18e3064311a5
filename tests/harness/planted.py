"""Secrets of twelve kinds and things that look like them, made anew from a seed.

None stands in the repository as text, so that whoever scans it stays quiet.
"""

from __future__ import annotations

import base64
import random
import re
import string
from collections.abc import Callable
from dataclasses import dataclass

_WORD = string.ascii_letters + string.digits
_URL = _WORD + "-_"
_HEX = "0123456789abcdef"
_BASE32 = string.ascii_uppercase + "234567"


@dataclass(frozen=True)
class Planted:
    """A secret and a text that it stands in; no run of ``needles`` may be found anywhere."""

    kind: str
    text: str
    needles: tuple[str, ...]


def planted(seed: int, count: int) -> list[Planted]:
    """``count`` secrets, each kind in turn."""
    rng = random.Random(seed)
    kinds = list(_KINDS.items())
    return [
        Planted(kind, *make(rng)) for kind, make in (kinds[i % len(kinds)] for i in range(count))
    ]


def _run(rng: random.Random, length: int, letters: str = _WORD) -> str:
    found = [rng.choice(letters) for _ in range(length)]
    if letters in (_WORD, _URL):  # what is random is hardly ever without one of each
        found[1], found[2], found[3] = rng.choice(string.digits), "q", "Z"
    return "".join(found)


def _aws(rng: random.Random) -> tuple[str, tuple[str, ...]]:
    name, key = "AKIA" + _run(rng, 16, _BASE32), _run(rng, 40, _WORD)
    text = f"[default]\naws_access_key_id = {name}\naws_secret_access_key = {key}\n"
    return text, (name, key)


def _github(rng: random.Random) -> tuple[str, tuple[str, ...]]:
    token = "ghp_" + _run(rng, 36)
    return f"git clone failed with the token {token} in the address", (token,)


def _gitlab(rng: random.Random) -> tuple[str, tuple[str, ...]]:
    token = "glpat-" + _run(rng, 20)
    return f"the runner registered with {token}.", (token,)


def _openai(rng: random.Random) -> tuple[str, tuple[str, ...]]:
    token = f"sk-proj-{_run(rng, 74, _URL)}T3Blbk" + f"FJ{_run(rng, 74, _URL)}"
    return f"curl said 401 for {token}", (token,)


def _slack(rng: random.Random) -> tuple[str, tuple[str, ...]]:
    token = "-".join(
        ("xoxb", _run(rng, 12, "123456789"), _run(rng, 12, "123456789"), _run(rng, 24))
    )
    return f"slack: using {token} to post", (token,)


def _stripe(rng: random.Random) -> tuple[str, tuple[str, ...]]:
    token = "sk_" + "live_" + _run(rng, 32)
    return f"the charge was made with {token}", (token,)


def _google(rng: random.Random) -> tuple[str, tuple[str, ...]]:
    token = "AI" + "za" + _run(rng, 35)
    return f'loader({{key: "{token}"}})', (token,)


def _jwt(rng: random.Random) -> tuple[str, tuple[str, ...]]:
    head, body = '{"alg":"HS256","typ":"JWT"}', f'{{"sub":"{_run(rng, 12)}","exp":1999999999}}'
    parts = [base64.urlsafe_b64encode(x.encode()).decode().rstrip("=") for x in (head, body)]
    token = ".".join((*parts, _run(rng, 43)))
    return f"the cookie held {token} until it ran out", (token, parts[1])


def _pem(rng: random.Random) -> tuple[str, tuple[str, ...]]:
    lines = [_run(rng, 64) for _ in range(12)]
    name = rng.choice(("RSA ", "EC ", "OPENSSH ", ""))
    frame = [f"-----{word} {name}PRIVATE " + "KEY-----" for word in ("BEGIN", "END")]
    return "\n".join(("id_key:", frame[0], *lines, frame[1], "done")), tuple(lines)


def _address(rng: random.Random) -> tuple[str, tuple[str, ...]]:
    scheme = rng.choice(("postgres", "mysql", "mongodb+srv", "redis", "amqp", "https"))
    word = _run(rng, rng.randint(10, 24))
    return f"connecting to {scheme}://app:{word}@db.internal:5432/orders now", (word,)


def _header(rng: random.Random) -> tuple[str, tuple[str, ...]]:
    token = _run(rng, 40)
    return f"> GET /v1/orders\n> Authorization: Bearer {token}\n> Accept: */*", (token,)


def _setting(rng: random.Random) -> tuple[str, tuple[str, ...]]:
    word = _run(rng, rng.randint(12, 32))
    name = rng.choice(("DB_PASSWORD", "SECRET_KEY", "SMTP_PASS", "SESSION_SECRET", "API_KEY"))
    quote = rng.choice(("", '"', "'"))
    return f"PORT=8080\n{name}={quote}{word}{quote}\nDEBUG=1\n", (word,)


_KINDS: dict[str, Callable[[random.Random], tuple[str, tuple[str, ...]]]] = {
    "aws key pair": _aws,
    "github token": _github,
    "gitlab token": _gitlab,
    "openai key": _openai,
    "slack token": _slack,
    "stripe key": _stripe,
    "google key": _google,
    "web token": _jwt,
    "private key": _pem,
    "address with a password": _address,
    "authorization header": _header,
    "environment file": _setting,
}


def look_alikes(seed: int) -> list[tuple[str, str]]:
    """Forty texts, each with the word in it that must survive whole and be found."""
    rng = random.Random(seed)

    def hexes(length: int) -> str:
        return _run(rng, length, _HEX)

    def uuid() -> str:
        return "-".join(hexes(n) for n in (8, 4, 4, 4, 12))

    digest = base64.b64encode(rng.randbytes(64)).decode()
    image = base64.b64encode(b"\x89PNG\r\n\x1a\n" + rng.randbytes(600)).decode()
    commit, short, lock, build = hexes(40), hexes(9), hexes(64), uuid()
    example = "bPxRfiCY" + "EXAMPLEKEY"
    return [
        (f"fixed in commit {commit}", commit),
        (f"bisect says {short} is the first bad one", short),
        (f"    --hash=sha256:{lock}", lock),
        (f'"integrity": "sha512-{digest}"', max(re.findall(r"[A-Za-z0-9]+", digest), key=len)),
        (f"image@sha256:{hexes(64)} was pulled by its digest quokkas", "quokkas"),
        (f"request {build} took 3 s", build),
        (f'{{"sessionID": "{uuid()}", "trace": "walrus-trace"}}', "walrus-trace"),
        ("a risk-based-approach-for-logins-2024 was chosen", "risk-based-approach-for-logins-2024"),
        ("pip install sk-learn-contrib-tools", "sk-learn-contrib-tools"),
        ("the desk-sharing-policy-of-2025-for-berlin", "desk-sharing-policy-of-2025-for-berlin"),
        ("AKIA" + "IOSFODNN7EXAMPLE is the documented one", "AKIA" + "IOSFODNN7EXAMPLE"),
        ("aws_secret_access_" + f"key = wJalrXUtnFEMI/K7MDENG/{example}", example),
        ("API_KEY=your-api-key-goes-here", "your-api-key-goes-here"),
        ("DB_PASSWORD=changeme-before-launch", "changeme-before-launch"),
        ("DB_PASSWORD=${DATABASE_PASSWORD_FROM_VAULT}", "DATABASE_PASSWORD_FROM_VAULT"),
        ("postgres://user:password@localhost/orders_marmot", "orders_marmot"),
        ("postgres://app:${PGPASSWORD_VARIABLE}@db/orders", "PGPASSWORD_VARIABLE"),
        ("export TOKEN=$(vault_read_kubernetes_token)", "vault_read_kubernetes_token"),
        ("token = get_token_from_session(request)", "get_token_from_session"),
        ("password = request.form_password_field", "form_password_field"),
        ("secret = settings.SIGNING_SECRET_NAME", "SIGNING_SECRET_NAME"),
        ("max_tokens: 4096, input_tokens: 1234567890", "1234567890"),
        ("password: str | None = field_default_none", "field_default_none"),
        ("the token bucket refills at 1000000 a second, see rate_limiter_v2", "rate_limiter_v2"),
        ("Authorization: Bearer <access-token-placeholder>", "access-token-placeholder"),
        ("the Bearer scheme is described in rfc6750section2", "rfc6750section2"),
        ("primary_key=True, foreign_key='orders_customer_id_2'", "orders_customer_id_2"),
        ('cache_key = "orders-by-customer-v2-2024"', "orders-by-customer-v2-2024"),
        ("secretName: checkout-tls-production-2024", "checkout-tls-production-2024"),
        ("keyboard shortcut ctrl-shift-k moves the_marked_line", "the_marked_line"),
        ("author: someone, authored 2026-11-30T04:13:00Z in monotreme", "monotreme"),
        ("https://example.com:8080/callback@v2/echidna", "echidna"),
        ("git@github.com:acme/platform_service_v12.git", "platform_service_v12"),
        ("/usr/lib/python3.11/site-packages/cryptography/hazmat_layer", "hazmat_layer"),
        ("TestAuthTokenRefreshAfterExpiry2 passed", "TestAuthTokenRefreshAfterExpiry2"),
        (f"data:image/png;base64,{image} shows the platypus", "platypus"),
        ("-----BEGIN CERTIFICATE----- is how certificate_blocks start", "certificate_blocks"),
        ("-----BEGIN PUBLIC KEY----- is fine, says pubkey_reader", "pubkey_reader"),
        ("ssh-ed25519 keys are read by authorized_keys_parser", "authorized_keys_parser"),
        ('etag W/"5e1-18f3a7c2b40" and nonce 18446744073709551615', "18446744073709551615"),
    ]  # fmt: skip


def probes(secret: Planted) -> list[bytes]:
    """Runs of a secret that would be found of it, in an index of words too: in lower case.

    What a token of its kind begins with is left out, as a text about it would say it.
    """
    runs = [run for n in secret.needles for run in re.findall(r"[A-Za-z0-9]{8,}", n)]
    return [run[-24:].lower().encode() for run in runs if len(run) >= 10]
