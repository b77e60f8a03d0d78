"""All that a store's owner keeps open, in which order, and whether all of it is well.

Refuses to know: methods, requests and processes.

Offers: cluster · health.doctor · library · past · switch
May import: base · settings · log · events · sources · models · views · store · embedding ·
    documents · agents · history · sessions
Light: yes
"""
