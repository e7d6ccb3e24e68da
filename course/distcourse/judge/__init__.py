"""Judge answers in a separate process: the check runs here, the student's functions run elsewhere.

Grading runs a submission in one process (the *student's*) and its checks in another (the *judge's*). In the judge, the
names that the submission defines are `Remote` objects: a call sends the arguments over a socket, waits, and returns
what came back. So a verdict is made where none of the student's code runs, and a check reads as in the notebook.

Plain results are not enough: one check in four hands live objects to an answer (ranks of a simulated world, whose
messages the judge counts; a function to differentiate), and others look at what an answer did to its arrays.

| module | what it holds |
| --- | --- |
| `frames` | frames on a socket |
| `arrays` | arrays and parameters that both processes hold, and keep equal |
| `values` | how everything else is written: plain data, and handles of objects that stay where they are |
| `objects` | what stands for such an object, and what the student's code may do with it |
| `link` | calls, calls back, and exceptions |
| `student` | the student's end: answers calls, one greenlet for each, since ranks wait for each other within them |
| `process` | the judge's end: runs a check and returns what it shows |

What the student's process sends is never unpickled. See course/GRADING.md for what is promised.
"""
