"""From a query to a page of hits.

Refuses to know: the wire, and how each channel ranks inside.

Offers: evaluation.asking · evaluation.collection · evaluation.told ·
    hits · layout · params · search · similar · support
May import: base · text · sources · models · views · store · documents
Light: yes
"""
