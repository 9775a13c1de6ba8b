"""The report of a study: everything that its folder says, as an Answer.

answer = report("studies/quickstart")       from front.json and study.json alone
answer.to_html("quickstart.html")
write_report("studies/quickstart")          report.html and report.md in the folder itself
"""

from dse.questions.study.report import report, write_report

__all__ = ["report", "write_report"]
