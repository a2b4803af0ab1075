"""Reports: what was judged as a page with pictures, as Markdown, as JUnit. Loads no torch.

`gathering` turns an input into a `Report`; `page`, `markdown` and `junit` write it.
"""

from embedwatch.report.contents import Chart, Report, Section
from embedwatch.report.junit import to_junit
from embedwatch.report.markdown import to_markdown
from embedwatch.report.page import to_page

__all__ = ["Chart", "Report", "Section", "to_junit", "to_markdown", "to_page"]
