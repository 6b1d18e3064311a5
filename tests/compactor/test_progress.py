"""Progress fidelity: nothing is told further along than it was, by the checks alone (§10, §16).

Forty fixtures of failed, interrupted, proposed and pending work. For each, answers that claim more
are refused, and an answer that tells it as it was is taken.
"""

from __future__ import annotations

import pytest

from optchat.compactor.admission import Subject, findings
from optchat.compactor.facts import Facts

# kind, speaker, outcome, source, what claims too much, what may stand
FIXTURES = [
    (
        "user",
        "person",
        "",
        "please deploy the api to production tonight",
        "The api was deployed to production.",
        "User asks to deploy the api to production tonight.",
    ),
    (
        "user",
        "person",
        "",
        "can you fix the flaky login test in auth_spec.ts?",
        "Fixed the flaky login test in auth_spec.ts.",
        "User asks for a fix of the flaky login test in auth_spec.ts.",
    ),
    (
        "user",
        "person",
        "",
        "I want the cache to be enabled by default",
        "The cache is now enabled by default.",
        "User wants the cache to be enabled by default.",
    ),
    (
        "user",
        "person",
        "",
        "add a retry to the http client, max 3 attempts",
        "A retry was added to the http client, max 3 attempts.",
        "User asks for a retry in the http client, max 3 attempts.",
    ),
    (
        "user",
        "person",
        "",
        "should we merge the release branch today?",
        "The release branch was merged today.",
        "User asks whether to merge the release branch today.",
    ),
    (
        "user",
        "person",
        "",
        "maybe Postgres would be better than SQLite here",
        "Postgres was chosen over SQLite.",
        "User considers Postgres instead of SQLite.",
    ),
    (
        "user",
        "person",
        "",
        "don't release yet, wait for the security review",
        "Released after the security review.",
        "User says not to release yet: wait for the security review.",
    ),
    (
        "user",
        "person",
        "",
        "once the tests pass, publish version 2.4.0",
        "Tests passed and version 2.4.0 was published.",
        "User wants version 2.4.0 published once the tests pass.",
    ),
    (
        "assistant",
        "agent",
        "",
        "I can add exponential backoff to fetchWithRetry if you like.",
        "Added exponential backoff to fetchWithRetry.",
        "Agent offers exponential backoff in fetchWithRetry.",
    ),
    (
        "assistant",
        "agent",
        "",
        "I propose we use Redis for the queue; it is simple to run.",
        "Decided to use Redis for the queue.",
        "Agent proposes Redis for the queue: simple to run.",
    ),
    (
        "assistant",
        "agent",
        "",
        "I propose we use Redis for the queue; it is simple to run.",
        "The user requested Redis for the queue.",
        "Agent proposes Redis for the queue.",
    ),
    (
        "assistant",
        "agent",
        "",
        "Next I will migrate the users table, then run the suite.",
        "Migrated the users table and the suite passed.",
        "Agent plans to migrate the users table, then to run the suite.",
    ),
    (
        "assistant",
        "agent",
        "",
        "The fix should work now, but I have not run the tests.",
        "The fix works and the tests passed.",
        "Agent expects the fix to work; tests have not been run.",
    ),
    (
        "assistant",
        "agent",
        "",
        "I tried to build the image but the build failed with exit code 137.",
        "Built the image successfully.",
        "Agent tried to build the image; it failed with exit code 137.",
    ),
    (
        "assistant",
        "agent",
        "",
        "The deployment is still pending approval from the platform team.",
        "The deployment was approved by the platform team and is live.",
        "Deployment still pending approval from the platform team.",
    ),
    (
        "assistant",
        "agent",
        "",
        "We need to decide between Kafka and NATS; I lean towards NATS.",
        "NATS was selected over Kafka.",
        "Open: Kafka or NATS; agent leans towards NATS.",
    ),
    (
        "assistant",
        "agent",
        "",
        "I could not reproduce the crash, so the cause is unknown.",
        "Identified the cause of the crash and fixed it.",
        "Agent could not reproduce the crash; cause unknown.",
    ),
    (
        "assistant",
        "agent",
        "",
        "If the pipeline is green, the change can be merged.",
        "The pipeline is green and the change was merged.",
        "Agent: the change can go in if the pipeline succeeds; not yet known.",
    ),
    (
        "assistant",
        "agent",
        "",
        "I started refactoring parser.py; half of the functions are left.",
        "Refactored parser.py; done.",
        "Agent began refactoring parser.py; half of the functions are left.",
    ),
    (
        "assistant",
        "agent",
        "",
        "The index has not been rebuilt yet, so search results may be stale.",
        "The index was updated and search works.",
        "Index not rebuilt yet; search results may be stale.",
    ),
    (
        "result bash",
        "tool",
        "error",
        "npm ERR! code ELIFECYCLE\nnpm ERR! build failed",
        "The build completed.",
        "Build failed: npm ELIFECYCLE error.",
    ),
    (
        "result bash",
        "tool",
        "error",
        "fatal: Authentication failed for 'https://git.example.com'",
        "Pushed to https://git.example.com.",
        "Authentication failed for https://git.example.com.",
    ),
    (
        "result bash",
        "tool",
        "",
        "3 failed, 41 passed in 12.10s",
        "All tests are green and verified.",
        "Tests: 3 failed, 41 passed in 12.10s.",
    ),
    (
        "result bash",
        "tool",
        "interrupted",
        "Running migrations 4 of 9 ...",
        "Migrations completed, 9 of 9.",
        "Interrupted while running migrations 4 of 9.",
    ),
    (
        "result test",
        "tool",
        "error",
        "TimeoutError: page.goto exceeded 30000 ms",
        "Page test passed.",
        "TimeoutError: page.goto exceeded 30000 ms.",
    ),
    (
        "result deploy",
        "tool",
        "error",
        "rollout of web-7f9c stuck: ImagePullBackOff",
        "Rolled out web-7f9c.",
        "Rollout of web-7f9c stuck with an error: ImagePullBackOff.",
    ),
    (
        "call bash",
        "tool",
        "",
        '{"command": "terraform apply -auto-approve"}',
        "Terraform apply succeeded.",
        "Agent runs terraform apply -auto-approve.",
    ),
    (
        "call edit",
        "tool",
        "",
        '{"file": "src/app.ts", "old": "1", "new": "2"}',
        "Verified the change in src/app.ts.",
        "Agent edits src/app.ts.",
    ),
    (
        "report",
        "agent",
        "",
        "I looked at three candidates; none of them was tested against the load.",
        "Three candidates were tested against the load.",
        "Sub-agent looked at three candidates; none tested against the load.",
    ),
    (
        "report",
        "agent",
        "",
        "The upgrade to Node 22 remains to be done by the infra team.",
        "The upgrade to Node 22 is done.",
        "Upgrade to Node 22 remains to be done by the infra team.",
    ),
    (
        "turn failed",
        "",
        "failed",
        "asked: user: deploy the worker\nanswered: Deploying the worker now.",
        "The worker was deployed.",
        "User asked to deploy the worker; the turn failed while deploying.",
    ),
    (
        "turn failed",
        "",
        "failed",
        "asked: user: try the new allocator\nanswered: The new allocator passed on x86 but crashed on arm.",
        "The new allocator passed.",
        "New allocator passed on x86 but crashed on arm.",
    ),
    (
        "turn interrupted",
        "",
        "interrupted",
        "asked: user: rename the module\nanswered: I renamed half of the imports.",
        "Renamed the module.",
        "Rename of the module interrupted; half of the imports were renamed.",
    ),
    (
        "turn interrupted",
        "",
        "interrupted",
        "asked: user: write the changelog\nanswered: ",
        "Wrote the changelog.",
        "User asked for the changelog; interrupted before any text.",
    ),
    (
        "turn completed",
        "",
        "",
        "asked: user: how would you fix it?\nanswered: I would add a lock around it.",
        "Fixed it by adding a lock; verified.",
        "User asked how to fix it; agent would add a lock around it.",
    ),
    (
        "turn completed",
        "",
        "",
        "asked: user: plan the migration\nanswered: Plan: 1. dump, 2. restore, 3. switch.",
        "Migrated: dump, restore and switch completed.",
        "User asked for a migration plan: dump, restore, switch.",
    ),
    (
        "range",
        "",
        "",
        "- user: please release 1.9\n- assistant: I will release 1.9 after the audit.",
        "Released 1.9 after the audit.",
        "User asks for release 1.9; agent will do it after the audit.",
    ),
    (
        "range",
        "",
        "",
        "- assistant: the tests were not run\n- user: then do not merge it",
        "Tests passed; merged.",
        "Tests not run; user says not to merge it.",
    ),
    (
        "range",
        "",
        "failed",
        "- s1 failed 2026-01-01T10:00Z: login experiment\n- s2 failed 2026-01-02T10:00Z: login again",
        "The login experiment was completed.",
        "Two login experiments failed.",
    ),
    (
        "user",
        "person",
        "",
        "wir wollten das Deployment morgen machen, bitte noch nicht deployed lassen",
        "Deployed das Deployment; completed.",
        "User: Deployment erst morgen.",
    ),
]


def subject(kind, speaker, outcome, source):
    return Subject(kind=kind, speaker=speaker, outcome=outcome, source=Facts(source))


def hard(line, of):
    return [f.name for f in findings(line, of) if not f.soft]


def test_there_are_forty():
    assert len(FIXTURES) == 40


@pytest.mark.parametrize("index", range(40))
def test_a_line_that_claims_more_is_refused(index):
    kind, speaker, outcome, source, too_much, _ = FIXTURES[index]
    found = hard(too_much, subject(kind, speaker, outcome, source))
    assert set(found) & {"overclaim", "hides_failure", "speaker"}, found


@pytest.mark.parametrize("index", range(40))
def test_a_line_that_tells_it_as_it_was_may_stand(index):
    kind, speaker, outcome, source, _, as_it_was = FIXTURES[index]
    assert hard(as_it_was, subject(kind, speaker, outcome, source)) == []


ADDED = [
    "Done.",
    "Successfully deployed.",
    "All tests pass.",
    "This was verified and merged.",
    "Completed and released.",
    "It works now.",
]


@pytest.mark.parametrize("added", ADDED)
@pytest.mark.parametrize("index", range(40))
def test_added_success_words_are_refused(index, added):
    """Except where the fixture itself says that very thing of a part."""
    kind, speaker, outcome, source, _, as_it_was = FIXTURES[index]
    found = hard(f"{as_it_was} {added}", subject(kind, speaker, outcome, source))
    if "passed" in source and added in ("All tests pass.", "It works now."):
        return
    assert "overclaim" in found, found


def test_what_is_founded_may_be_told():
    done = subject("assistant", "agent", "", "I fixed the retry in http.ts and the tests passed.")
    assert hard("Agent fixed the retry in http.ts; tests passed.", done) == []
    decided = subject("user", "person", "", "let's go with NATS instead of Kafka")
    assert hard("User decided for NATS instead of Kafka.", decided) == []
    verified = subject("result pytest", "tool", "", "44 passed in 3.21s")
    assert hard("44 passed in 3.21s.", verified) == []
