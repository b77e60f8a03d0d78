"""Texts that people paste into a search: commands with options, and quoted sentences."""

from __future__ import annotations

# A command as people type it, and the text of the only document about it.
COMMANDS = {
    "tar -xzf archive.tar.gz": "Unpack an archive with tar -xzf archive.tar.gz in its folder.",
    "docker run -it ubuntu": "docker run -it ubuntu opens a shell in a fresh container.",
    "git rebase -i HEAD~3": "Squash commits with git rebase -i HEAD~3 before you push.",
    "find . -name notes -delete": "find . -name notes -delete removes each file called so.",
    "grep -rn needle src": "Search a tree for a word: grep -rn needle src.",
    "java -jar server": "Start the server with java -jar server after the build.",
    "openssl req -newkey rsa": "A certificate request: openssl req -newkey rsa.",
    "rsync -avz here there": "Copy a folder with rsync -avz here there; attributes stay.",
    "netstat -tulpn": "Which process listens on a port? `netstat -tulpn` tells.",
    "chmod -R 755 public": "chmod -R 755 public makes a folder readable.",
    "pip install -r requirements": "pip install -r requirements installs what is listed.",
}

# A quoted sentence, and a text that has its words but not the sentence itself.
QUOTED = {
    '"fatal: not a git repository (or any of the parent directories)"': (
        "The message that no parent directory is a git repository means: you are elsewhere."
    ),
    '"ModuleNotFoundError: No module named yaml"': (
        "When a module such as yaml is not found, its package is not installed."
    ),
    'what means "connection refused by peer host"': (
        "The host refused a connection: nobody listens on that port."
    ),
}
