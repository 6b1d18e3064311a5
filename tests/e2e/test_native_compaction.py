"""The host's own compaction changes nothing of what a request holds (§13.4; I2, I5).

Automatic, manual, and after a provider's refusal: originals stay, the summary is not conversation,
copies make no second record, and the compaction's own request fits the window.
"""

from __future__ import annotations

from dataclasses import replace

from optchat.testing.hostfiles import ModelSpec, short_agent
from optchat.testing.provider import (
    CapturedRequest,
    Reply,
    call,
    context_overflow,
    text,
)
from tests.e2e.support import (
    Memory,
    check_each_request,
    conversation,
    eventually,
    grows,
    memory_fixture,
    own_lines,
    turns_so_far,
)
from tests.harness.request_reader import MemoryRead

WINDOW = ModelSpec(id="window-16k", context=16_384, output=2_048)
# How a model's provider counts is learnt for all sessions: what a refusal teaches stays with the
# model of its test, or the room of each other test would depend on which came first.
SHORT, LONG = replace(WINDOW, id="refuses-a-short-turn"), replace(WINDOW, id="refuses-a-long-turn")
# The host compacts by the total; what the input took is as it was estimated.
FULL = {"prompt_tokens": 3_000, "completion_tokens": 13_000, "total_tokens": 16_000}
WORDS = "the queue keeps each message until its consumer has acknowledged it and then drops it; "
READY = "[memory]\nreadiness_timeout_ms = 10000\n"

memory = memory_fixture(
    config=READY,
    models=(WINDOW, SHORT, LONG),
    model=WINDOW.id,
    agents={"build": short_agent("read", "memory_*")},
)


def run(
    memory: Memory, session: str, prompt: str, *replies: Reply, model: ModelSpec = WINDOW
) -> list[CapturedRequest]:
    """One prompt until the host is idle, whatever it does by itself; the main requests."""
    sent = len(memory.provider.requests(session))
    memory.provider.plan(session, *replies)
    finish(memory, session, prompt, sent + len(replies), model)
    return memory.provider.requests(session)[sent:]


def finish(memory: Memory, session: str, prompt: str, sent: int, model: ModelSpec) -> None:
    """One prompt until ``sent`` main requests were made in the session and the host is idle."""
    memory.host.prompt_async(session, prompt, model=model.id)
    memory.provider.wait_for(sent, session, timeout=40)
    eventually(lambda: not memory.host.status().get(session), what="an idle host")


def reading(memory: Memory, name: str = "notes.txt", size: int = 600) -> Reply:
    path = memory.host.project / name
    path.write_text(f"{name}\n" + (WORDS + "\n") * (size // len(WORDS)), encoding="utf-8")
    return call("read", {"filePath": str(path)})


def check(memory: Memory, session: str) -> list[MemoryRead]:
    """Coverage of each request, no summary in any, and a record for each thing said, once."""
    reads = check_each_request(memory, session)
    for request in memory.provider.requests(session):
        assert "Scripted summary" not in request.text
        assert "What did we do so far" not in request.text
    said = turns_so_far(conversation(memory.host.messages(session)))[-1].end
    eventually(lambda: memory.records(session) == said, what=f"{said} records")
    memory.wait_quiet()
    assert memory.records(session) == said
    return reads


def test_an_automatic_compaction_within_a_turn_does_not_show_in_it(memory: Memory) -> None:
    session = memory.host.create_session(title="within")
    run(memory, session, "the word is quokka", text("noted"))
    full = replace(reading(memory), usage=FULL)
    requests = run(memory, session, "read it", reading(memory), full, text("gone on"))
    assert len(memory.provider.requests(session, "compaction")) == 1
    check(memory, session)
    assert grows(memory.provider.requests(session)), "not one byte of the prefix moved"
    assert "Continue if you have next steps" not in requests[-1].text
    run(memory, session, "and now?", text("still here"))
    check(memory, session)


def test_an_automatic_compaction_after_an_answer_goes_on_with_everything(memory: Memory) -> None:
    session = memory.host.create_session(title="after")
    run(memory, session, "the word is quokka", reading(memory), text("noted"))
    requests = run(memory, session, "go on", text("and so on", usage=FULL), text("went on"))
    assert len(memory.provider.requests(session, "compaction")) == 1
    assert "Continue if you have next steps" in requests[-1].last_user_text
    run(memory, session, "are you there?", text("yes"))
    check(memory, session)


def test_a_manual_compaction_leaves_the_next_request_as_it_would_have_been(memory: Memory) -> None:
    session = memory.host.create_session(title="manual")
    run(memory, session, "the word is quokka", reading(memory), text("noted"))
    memory.host.summarize(session)
    run(memory, session, "which word?", text("quokka"))
    memory.host.summarize(session)
    run(memory, session, "and again?", text("quokka"))
    assert len(memory.provider.requests(session, "compaction")) == 2
    check(memory, session)
    assert grows(memory.provider.requests(session))


def test_a_compaction_of_many_windows_is_given_what_fits(memory: Memory) -> None:
    """What is long past is there as the session's own lines, and nothing of other sessions."""
    other = memory.host.create_session(title="other")
    run(memory, other, "the secret of the other session is wombat", text("noted, wombat"))
    session = memory.host.create_session(title="large")
    for n in range(14):
        run(memory, session, f"ask {n}", text(f"answer {n}: " + WORDS * 60))
        memory.wait_quiet()
    last = memory.provider.requests(session)[-1]
    assert own_lines(last)
    memory.host.summarize(session)
    (compaction,) = memory.provider.requests(session, "compaction")
    assert compaction.prompt_tokens < WINDOW.context - WINDOW.output
    assert "<own_history" in compaction.text
    # The newest turns stay beside the host's summary; those before them are as they were said.
    assert any(f"answer {n}: {WORDS}" in compaction.text for n in range(8, 14))
    assert "wombat" not in compaction.text
    assert "shared_memory" not in compaction.text
    run(memory, session, "go on", text("gone on"))
    check(memory, session)


def test_a_refused_request_is_made_again_smaller_and_gives_no_second_record(
    memory: Memory,
) -> None:
    """The provider counts more than we thought: what it refused is learnt from."""
    session = memory.host.create_session(title="refused")
    for n in range(6):
        run(memory, session, f"ask {n}", text(f"answer {n}: " + WORDS * 30), model=SHORT)
        memory.wait_quiet()
    replies = (reading(memory), context_overflow(), text("done"))
    requests = run(memory, session, "read it", *replies, model=SHORT)
    refused, again = requests[-2:]
    assert len(memory.provider.requests(session, "compaction")) == 1
    assert again.prompt_tokens < refused.prompt_tokens
    assert [t for t in again.user_texts if "read it" in t] == again.user_texts[-1:]
    run(memory, session, "and now?", text("still here"), model=SHORT)
    check(memory, session)


def test_steps_that_were_compacted_away_are_native_or_in_the_checkpoint(memory: Memory) -> None:
    """§7, §13: a long turn, compacted by the host in the middle of it."""
    session = memory.host.create_session(title="long and compacted")
    steps = [reading(memory, f"part{n}.txt", 2_500) for n in range(30)]
    steps[8] = replace(steps[8], usage=FULL)
    replies = iter((*steps, text("all read")))
    refused: list[CapturedRequest] = []

    def answer(request: CapturedRequest) -> Reply | None:
        if request.session_id != session:
            return None
        # A refusal is learnt from as a full window: of a small one hardly any room would be left.
        compacted = memory.provider.requests(session, "compaction")
        if compacted and not refused and request.prompt_tokens > WINDOW.context * 2 // 3:
            refused.append(request)
            return context_overflow()
        return next(replies)

    memory.provider.responder = answer
    finish(memory, session, "read all the parts", 32, LONG)
    memory.provider.responder = None
    assert len(memory.provider.requests(session, "compaction")) == 2
    reads = check(memory, session)
    assert reads[-1].checkpoints
    second = memory.provider.requests(session, "compaction")[-1]
    assert second.prompt_tokens < WINDOW.context // 2, "what is told is not there a second time"
    assert [said for role, said in reads[-1].native if role == "user"] == ["read all the parts"]
    assert max(r.prompt_tokens for r in memory.provider.requests(session)) < WINDOW.context
