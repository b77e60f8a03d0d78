"""Errors, values, params, paths, durable files and child processes, for every package.

Refuses to know: anything that kbproc is about.

Offers: bundled · changes · durable · errors · failpoints · frames · garbage · gate · git ·
    hashes · host · layout · libraries · params · paths · patterns · pipes · sandbox · spared ·
    structs · suggest · threads · values · wording
May import: nothing
Light: yes
"""
