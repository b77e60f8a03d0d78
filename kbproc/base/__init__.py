"""Errors, values, params, paths, durable files and child processes, for every package.

Refuses to know: anything that kbproc is about.

Offers: budget · bundled · changes · clients · disk · durable · edits · errors · failpoints ·
    frames · garbage · gate · git · hashes · host · json_edit · layout · libraries · lines ·
    params · paths · patterns · person · pipes · pool · processes · purpose · renames · sandbox ·
    sockets · spared · structs · suggest · threads · times · tls · toml_edit · unseen · values ·
    wording · workers
May import: nothing
Light: yes
"""
