"""A small evaluation set of our own words, in the common form, with the competencies of recall.

Seeded: another seed gives other words, other noise and the same questions. Each planted answer is
the only session that answers its question; distractors use the question's common words.
"""

from __future__ import annotations

import random
from typing import Any

DAY_MS = 86_400_000
DIRECTORIES = ("/srv/harbour", "/srv/orchard", "/srv/light house (old)", "/srv/quarry")
SENTENCES = (
    "the {} keeps the {} until the {} is done",
    "please look why the {} of the {} fails after the {}",
    "moved the {} into the {} and left the {} alone",
    "we should measure the {} before we touch the {} or the {}",
    "the {} and the {} share one {}",
    "no {} was lost when the {} met the {}",
)
WORDS = """
server client token login redirect callback cookie session request response header queue worker
job lease schema table index column migration snapshot backup release branch commit deploy
pipeline container volume cluster gateway proxy cache limit bucket window retry timeout error
warning log metric alert dashboard parser lexer compiler linter test fixture module package import
export config option flag default secret permission role user tenant
"""
NOUNS = tuple(WORDS.split())
STEMS = ("bran", "clo", "dru", "fen", "glim", "hask", "jor", "kel", "mur", "nax", "pol", "quin")
ENDS = ("tavok", "rimel", "dosta", "vexin", "lumat", "gorri", "pashe", "zunde", "birko", "fawel")
HAN = "山河湖海风云雷电春夏秋冬东南西北金木水火土石竹松梅兰菊荷鱼鸟马牛羊虎龙蛇"


class RecallSet:
    """Sessions of noise, planted answers, and the questions about them."""

    def __init__(self, seed: int, *, noise: int = 90) -> None:
        self.random = random.Random(seed)
        self.used: set[str] = set()
        self.sessions: list[dict[str, Any]] = []
        self.cases: list[dict[str, Any]] = []
        for _ in range(noise):
            self.babble(self.session())
        self.free = list(self.sessions)
        self.random.shuffle(self.free)
        for name in (
            "identifier",
            "tool_input",
            "tool_output",
            "file_read",
            "reasoning",
            "separators",
            "stem",
            "typo",
            "phrase",
            "file_name",
            "punctuation",
            "han",
            "title",
            "time",
            "asking",
            "proximity",
            "evidence",
        ):
            getattr(self, name)()
        self.random.shuffle(self.sessions)

    def document(self) -> dict[str, Any]:
        return {"time_unit": "ms relative to now", "sessions": self.sessions, "cases": self.cases}

    # --- material ---

    def rare(self) -> str:
        """A word that nothing else holds."""
        while True:
            word = self.random.choice(STEMS) + self.random.choice(ENDS) + self.random.choice(STEMS)
            if word not in self.used:
                self.used.add(word)
                return word

    def sentence(self, count: int = 1) -> str:
        made = (
            self.random.choice(SENTENCES).format(*self.random.choices(NOUNS, k=3))
            for _ in range(count)
        )
        return ". ".join(made)

    def session(self, *, title: str = "", age_ms: int | None = None) -> dict[str, Any]:
        updated = -(age_ms or self.random.randint(2 * 3_600_000, 200 * DAY_MS))
        made = {
            "id": f"ses{len(self.sessions):04d}",
            "title": title or " ".join(self.random.choices(NOUNS, k=3)),
            "directory": self.random.choice(DIRECTORIES),
            "parent_id": None,
            "created": updated - 3_600_000,
            "updated": updated,
            "messages": [],
        }
        self.sessions.append(made)
        return made

    def say(self, session: dict[str, Any], role: str, part: dict[str, Any]) -> None:
        number = len(session["messages"])
        message = f"{session['id']}-m{number:03d}"
        session["messages"].append(
            {
                "id": message,
                "role": role,
                "created": session["updated"] - (90 - number) * 20_000,
                "parts": [{"id": f"{message}-p", **part}],
            }
        )

    def babble(self, session: dict[str, Any]) -> None:
        for _ in range(self.random.randint(2, 4)):
            self.say(session, "user", text(self.sentence()))
            if self.random.random() < 0.4:
                self.say(session, "assistant", thought(self.sentence(2)))
            self.say(session, "assistant", call("bash", {"command": "make"}, self.sentence(9)))
            self.say(session, "assistant", text(self.sentence(2)))

    def plant(self, role: str, part: dict[str, Any]) -> str:
        session = self.free.pop()
        self.say(session, role, part)
        self.babble(session)
        return session["id"]

    def ask(self, name: str, query: str, relevant: str, **options: Any) -> None:
        args = {"query": query, "match": "smart", "group": "session", "scope": "global"}
        expect = options.pop("expect", {})
        context = options.pop("context", "none")
        self.cases.append(
            {
                "name": name,
                "args": args | options,
                "ctx_session": context,
                "relevant": [relevant],
                "expect": expect,
            }
        )

    # --- competencies, two questions each ---

    def identifier(self) -> None:
        for number in (1, 2):
            word = f"{self.rare()}{self.rare().capitalize()}"
            found = self.plant("user", text(f"{self.sentence()} with {word} in it"))
            self.ask(f"identifier #{number}", word, found)

    def tool_input(self) -> None:
        for number in (1, 2):
            word = f"{self.rare()}_{self.rare()}".upper()
            part = call("bash", {"command": f"deploy --flag {word}"}, self.sentence())
            self.ask(f"tool input #{number}", word, self.plant("assistant", part))

    def tool_output(self) -> None:
        for number in (1, 2):
            word = f"{self.rare()}-{4100 + number}"
            part = call(
                "bash", {"command": "cat a.log"}, f"{self.sentence(9)} {word} {self.sentence(9)}"
            )
            self.ask(f"tool output #{number}", word, self.plant("assistant", part))

    def file_read(self) -> None:
        for number in (1, 2):
            word = self.rare()
            part = call("read", {"filePath": "/srv/a.md"}, f"{self.sentence(9)} {word}.")
            self.ask(f"file read #{number}", word, self.plant("assistant", part))

    def reasoning(self) -> None:
        for number in (1, 2):
            word = self.rare()
            found = self.plant("assistant", thought(f"because of {word} {self.sentence()}"))
            self.ask(f"reasoning #{number}", word, found)

    def separators(self) -> None:
        for number, (written, asked) in enumerate(
            (("{}_{}_{}", "{}-{}-{}"), ("{}-{}-{}", "{} {} {}"), ("{}_{}_{}", "{}.{}.{}")), 1
        ):
            words = [self.rare() for _ in range(3)]
            found = self.plant("user", text(f"{self.sentence()}: call {written.format(*words)}"))
            self.ask(f"separators #{number}", asked.format(*words), found)

    def stem(self) -> None:
        for number in (1, 2):
            word = self.rare()
            found = self.plant("user", text(f"we are migrating the {word} buckets at night"))
            self.ask(f"stem #{number}", f"{word} bucket migration", found)

    def typo(self) -> None:
        for number in (1, 2):
            word = self.rare()
            found = self.plant(
                "user", text(f"the {word} service keeps restarting, {self.sentence()}")
            )
            at = 2 if word[2] != word[3] else 1
            wrong = word[:at] + word[at + 1] + word[at] + word[at + 2 :]
            self.ask(f"typo #{number}", f"{wrong} restarting", found)

    def phrase(self) -> None:
        for number in (1, 2):
            one, two = self.rare(), self.rare()
            found = self.plant("assistant", text(f"retry the {one} queue before {two} deploys"))
            self.plant("assistant", text(f"deploys of {two} queue; {one} retry before the {one}"))
            self.ask(f"phrase #{number}", f'"retry the {one} queue before {two}"', found)

    def file_name(self) -> None:
        for number in (1, 2):
            name = f"{self.rare()}_view.ts"
            part = call("edit", {"filePath": f"/srv/light house (old)/src/{name}"}, "ok")
            self.ask(f"file name #{number}", name, self.plant("assistant", part))

    def punctuation(self) -> None:
        forms = ("error[E0432]: no '{}::k'", "C:\\Users\\{}\\a b.log", "({} AND", "{}* OR NOT")
        for number, form in enumerate(forms, 1):
            told = form.format(self.rare())
            part = call("bash", {"command": "run"}, f"{self.sentence()}\r\n{told}\r\n")
            self.ask(f"punctuation #{number}", told, self.plant("assistant", part))

    def han(self) -> None:
        signs = self.random.sample(HAN, 12)
        for number in (1, 2):
            pair, rest = signs[6 * number - 6 : 6 * number - 4], signs[6 * number - 4 : 6 * number]
            written = "".join((*rest[:2], *pair, *rest[2:]))
            found = self.plant("user", text(f"{written}的"))
            self.ask(f"han #{number}", "".join(pair), found)

    def title(self) -> None:
        for number in (1, 2):
            word = self.rare()
            made = self.session(title=f"server {word} log")
            self.babble(made)
            self.ask(f"title #{number}", word, made["id"])

    def time(self) -> None:
        for number, bound in enumerate(("since", "until"), 1):
            word = self.rare()
            old = self.session(age_ms=40 * DAY_MS)
            new = self.session(age_ms=DAY_MS)
            for made in (old, new):
                self.babble(made)
                self.say(made, "user", text(f"begin the {word} rollout"))
            wanted, other = (new, old) if bound == "since" else (old, new)
            expect = {"not_in_results": [other["id"]]}
            self.ask(f"time #{number}", word, wanted["id"], expect=expect, **{bound: "7d"})

    def asking(self) -> None:
        for number in (1, 2):
            one, two = self.rare(), self.rare()
            asking = self.session(age_ms=60_000)
            self.say(
                asking, "user", text(f"how did we fix the {one} of the {two}? find {one} {two}")
            )
            child = self.session(age_ms=30_000)
            child["parent_id"] = asking["id"]
            self.say(child, "assistant", text(f"looking for {one} and {two} now"))
            found = self.plant("assistant", text(f"{self.sentence()}. {one} was cured by {two}"))
            self.ask(
                f"asking #{number}",
                f"{one} {two} fix",
                found,
                context=asking["id"],
                expect={"not_in_results": [asking["id"], child["id"]]},
            )

    def proximity(self) -> None:
        for number in (1, 2):
            one, two = self.rare(), self.rare()
            far = f"{one} {self.sentence(12)} {two}"
            self.plant("assistant", text(far))
            found = self.plant(
                "assistant", text(f"{self.sentence(6)} {one} {two} {self.sentence(6)}")
            )
            self.ask(f"proximity #{number}", f"{one} {two}", found)

    def evidence(self) -> None:
        for number in (1, 2):
            word = self.rare()
            made = self.session()
            self.say(made, "user", text(f"test it with {word} please"))
            skill = f"# {word}\n{word} runs things. " + f"use {word} with care. " * 30
            self.say(made, "assistant", call("skill", {"skill": word}, skill))
            self.say(made, "assistant", call("bash", {"command": f"{word} start -s t1"}, "started"))
            self.ask(
                f"evidence #{number}",
                word,
                made["id"],
                group="part",
                expect={
                    "class_in_top3": ["tool-input", "human-text"],
                    "max_class_in_top5": {"skill-definition": 1},
                },
            )


def text(words: str) -> dict[str, Any]:
    return {"type": "text", "text": words}


def thought(words: str) -> dict[str, Any]:
    return {"type": "reasoning", "text": words}


def call(tool: str, given: dict[str, Any], output: str) -> dict[str, Any]:
    return {
        "type": "tool",
        "tool": tool,
        "input": given,
        "output": output,
        "title": tool,
        "status": "completed",
    }
