"""Errors, values, params, paths, durable files and child processes, for every package.

Refuses to know: anything that kbproc is about.

Offers: changes · durable · errors · failpoints · frames · gate · host · layout · libraries ·
    params · paths · patterns · pipes · sandbox · spared · structs · suggest · threads ·
    values · wording
May import: nothing
Light: yes
"""
