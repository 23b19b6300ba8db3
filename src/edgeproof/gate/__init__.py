"""The rules that turn what was measured into verdicts, and a ledger into an exit code."""
