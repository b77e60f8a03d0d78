"""All that a store's owner keeps open, and the order of opening and closing.

Refuses to know: methods, requests and processes.

Offers: library · past · switch
May import: base · settings · log · models · views · store · embedding · documents · health ·
    agents · history · sessions
Light: yes
"""
