"""Claims that people make about models and hardware, judged by what `dse` answers.

A claim is a file (search_spaces/claims/, or one's own): `dse.accuracy.claims.claim` reads it,
`asked` asks the questions behind it, `judge` gives the verdicts, `present` shows them.
"""
