"""From a query to a page of hits.

Refuses to know: the wire, and how each channel ranks inside.

Offers: hits · layout · params · search · support
May import: base · text · models · views · store · documents
Light: yes
"""
