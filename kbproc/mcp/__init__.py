"""The methods as tools of the Model Context Protocol, on stdin and stdout, in both of its eras.

Refuses to know: what methods do, and which process owns the store.

Offers: declared · setup.names · setup.run
May import: base · settings · store · calls · methods · wire · sharing
Light: yes
"""
