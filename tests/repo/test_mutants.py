"""`make mutants` puts defects that were mended back into today's code."""

from __future__ import annotations

from tools.mutants import mutants


def test_every_defect_can_be_put_back() -> None:
    """Mend a `file` or an `old` in tools/mutants.toml where the code has moved or changed; take a
    defect out only if its code is gone.
    """
    table = mutants()
    assert [problem for mutant in table for problem in mutant.problems()] == []
    assert len({mutant.name for mutant in table}) == len(table)
    assert all(mutant.breaks and mutant.commit and mutant.edits for mutant in table)
