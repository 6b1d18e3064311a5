LONG = "The retry in src/net/http.ts waits 250 ms and then gives up; the log shows ECONNRESET. " * 12


def test_first(bench):
    a = bench.session()
    a.user("please look at it")
    a.assistant(LONG, tools=(("bash", {"c": "ls"}, LONG), ("read", {"p": 1}, LONG)))
    a.sync()
    assert bench.drain() == 0
    a.assistant("all seen " + LONG, terminal="completed")
    a.sync(idle=True)
    bench.finish()
    for c in bench.model.calls:
        print(c.messages[0].text[:3000])
    for n in bench.nodes():
        print(n.tree, n.span, n.kind, n.label, "|", n.text, n.evidence)
    print(bench.counts(), bench.findings(), bench.failed(), bench.spent())
    assert len(bench.model.calls) == 1
    assert len(bench.publications()) == 1
