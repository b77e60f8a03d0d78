"""What every room may use, and none of kbproc's own ideas: errors, values, params, paths, durable
files, child processes.

Refuses to know: anything that kbproc is about.

Offers: checksums.blocks · checksums.footers · checksums.journal · checksums.sealed · durable ·
    errors · failpoints · gate · host · layout · params · paths · pipes · sandbox · suggest ·
    threads · values · wording
May import: nothing
Light: yes
"""
