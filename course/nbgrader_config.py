"""How nbgrader handles this course. Run its commands in this folder."""

from nbgrader.converters import Autograde, GenerateAssignment

from distlearn.lab.author.nbgrader_steps import ClearPredictions, RunGradedCells


def steps(converter, name):
    """The steps that nbgrader itself takes."""
    return list(converter.class_traits()[name].default())


c = get_config()

c.CourseDirectory.course_id = "distlearn"
c.CourseDirectory.release_directory = "../labs"  # the students' side is part of the repository

# The source holds a sample prediction; the student's copy holds none.
c.GenerateAssignment.preprocessors = [ClearPredictions, *steps(GenerateAssignment, "preprocessors")]

# Cells tagged "engines" are demonstrations that start processes: nothing graded needs them, so grading skips them.
# Graded cells lose their tags first, or a student could have their checks skipped.
c.Autograde.sanitize_preprocessors = [*steps(Autograde, "sanitize_preprocessors"), RunGradedCells]
c.Execute.skip_cells_with_tag = "engines"
c.Execute.timeout = 300  # seconds a cell; nbgrader's own 30 are too few on a busy machine
c.Execute.allow_errors = True  # a wrong answer must not stop the cells below it
c.OverwriteCells.add_missing_cells = True  # a check that was deleted comes back
c.LimitOutput.max_lines = 500
