"""From candidates to numbers: metrics, rules, objectives and what they rest on."""
