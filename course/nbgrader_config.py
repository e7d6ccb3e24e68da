"""How nbgrader handles this course. Run its commands in this folder."""

import os
import sys
import warnings

from distcourse.author.collect import Collect, Extract
from distcourse.author.execute import ExecuteAll
from distcourse.author.pages import Disarm, FeedbackPage, NameGrades
from distcourse.author.steps import (
    ClearPredictions,
    FoldCells,
    MendMetadata,
    ReadSubmission,
    Ready,
    RestoreCells,
    SkipDemonstrations,
)
from nbgrader.converters import Autograde, GenerateAssignment, GenerateFeedback
from nbgrader.preprocessors import ClearHiddenTests, Execute, OverwriteCells


def steps(converter, name):
    """The steps that nbgrader itself takes."""
    return list(converter.class_traits()[name].default())


# nbgrader calls `alembic` by name: let it find the one beside this Python where the environment is not activated.
os.environ["PATH"] = os.path.dirname(sys.executable) + os.pathsep + os.environ.get("PATH", "")

warnings.filterwarnings("ignore", module=r"nbgrader\.api")  # SQLAlchemy's advice to nbgrader's authors

c = get_config()

c.CourseDirectory.course_id = "distlearn"
c.CourseDirectory.ignore = [".ipynb_checkpoints", "*.pyc", "__pycache__", "feedback", "exercises.py"]
c.CourseDirectory.release_directory = "../labs"  # the students' side is part of the repository

# The source holds a sample prediction; the student's copy holds none.
# Checks and plotting code are folded there.
c.GenerateAssignment.preprocessors = [ClearPredictions, FoldCells, *steps(GenerateAssignment, "preprocessors")]

# A cell of an exercise that was deleted, merged or moved comes back; a copy of one counts for nothing.
sanitize = steps(Autograde, "sanitize_preprocessors")
sanitize.insert(sanitize.index(OverwriteCells), RestoreCells)

# Grading skips the demonstrations (cells tagged "engines", "real-run" or "slow"): nothing graded needs them. It
# skips no others, whatever tags a student gives to the checks.
c.Autograde.exporter_class = ReadSubmission
c.Autograde.sanitize_preprocessors = [Ready, MendMetadata, *sanitize, SkipDemonstrations]

# Submissions run in a sandbox, and their checks in another; what they show is disarmed. See GRADING.md.
# A cell that ends the kernel costs its own points, not all: the rest is run again without it. See ExecuteAll for more.
grading = steps(Autograde, "autograde_preprocessors")
grading[grading.index(Execute) : grading.index(Execute) + 1] = [ExecuteAll, Disarm]
c.Autograde.autograde_preprocessors = grading
c.Execute.timeout = 15  # seconds a cell; the slowest of a solved lab takes one or two
c.ExecuteAll.budget = 600  # seconds a submission, about; `distlearn course grade` ends it after 1.5 times as long
c.ExecuteAll.memory = 4 * 2**30  # bytes a submission
c.LimitOutput.max_lines = 500

# Feedback shows what the hidden tests found, not the tests, so that they serve another year. Its page names exercises.
c.GenerateFeedback.preprocessors = [ClearHiddenTests, *steps(GenerateFeedback, "preprocessors"), NameGrades]
c.GenerateFeedback.exporter_class = FeedbackPage

# Collecting what a learning platform hands over: Canvas, Moodle, Blackboard, or files named by hand.
c.ZipCollectApp.extractor_plugin = Extract
c.ZipCollectApp.collector_plugin = Collect
