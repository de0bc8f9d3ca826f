"""What the papers look at beside accuracy, from the models a run kept: one diagnostic per file.

Every diagnostic is a function that takes a `Replay` and returns a frozen result: its `rows` are the lines of a table,
its `numbers` the few that a ledger keeps. Diagnostics know no run folder and no engine. The figure of the same name in
`report/figures/` draws the result.
"""
