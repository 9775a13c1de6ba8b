"""The claims that people make about models and hardware, each as a number of this model.

A claim is a file of search_spaces/claims/, read by `dse.accuracy.claims.engine`; the other modules
of this package compute. `dse validate --claims` prints them; `tools.claims_page` makes
docs/claims.md of the same table.
"""
