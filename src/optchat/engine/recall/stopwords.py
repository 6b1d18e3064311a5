"""Words that say nothing of what is looked for. They are left out only where others remain.

Not those that mean something in English, such as the German `die` or the Spanish `son`.
"""

STOP_WORDS = frozenset(
    """
a about after again all also am an and any are as at be because been before being but by can could
did didn do does doesn doing don down during each few for from further get got had has have having
he
her here hers herself him himself his how i if in into is isn it its itself just let ll me might
more
most must my myself no nor not now of off on once only or other our ours out over own please re s
same
shall she should so some such t than that the their theirs them then there these they this those
through to too under until up us use ve very was wasn we were what when where which while who whom
why
will with would you your yours yourself

ab aber als am an auch auf aus bei bis da das dass dem der des dies doch du durch ein
eine
einem einen einer er es für haben ich ihr im in ist ja kann mein mit nach nicht noch nur oder
sein
sich sie sind so über um und uns unser von vor was wenn wer wie wir wird wo zu zum zur

au aux avec ce ces cette dans de des du elle en est et eux il ils je la le les leur lui ma mais me
mes
moi mon ne nos notre nous ou où par pas qu que qui sa se ses sont ta te tes toi ton
tu un
une vos votre vous

al como con del desde donde el ella ellos era eres es esta este esto fue ha hay la las lo los más
mi muy
nos nuestro para pero por porque que quien se ser si sobre su sus también tiene todo un una
uno y ya

che chi ci da dal della di dove e era gli ha ho il io la le lei lo loro ma mi ne nel non per
perché
più quando questo se si sono su sua suo tra un una

as com da das de do dos e ela ele em entre era essa esse esta este eu foi isso isto já mais mas
meu na
não no nos nós os ou para pela pelo por que quem se sem seu só sua também te tem um uma você

de een en het ik je niet voor wat zijn

и в во не что он на я с со как а то все она так его но да ты к у же вы за бы по ее мне было вот от
меня
""".split()  # noqa: SIM905  # a list of five hundred lines would say no more
)
