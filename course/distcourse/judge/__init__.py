"""Judge answers in a separate process: the check runs here, the student's functions run elsewhere.

Grading runs a submission in one process (the *student's*) and its checks in another (the *judge's*). In the judge, the
names that the submission defines are `Remote` objects: a call sends the arguments over a socket, waits, and returns
what came back. So a verdict is made where none of the student's code runs, and a check reads as in the notebook.

| module | what it holds |
| --- | --- |
| `wire` | frames on a socket |
| `arrays` | arrays and parameters that both processes hold, and keep equal |
| `values` | how everything else is written: plain data, and handles of objects that stay where they are |
| `link` | calls, calls back, and exceptions |
| `surface` | what the student's code may do with the judge's objects |
| `student` | the student's end: answers calls, one greenlet for each |
| `process` | the judge's end: runs a check and returns what it shows |

What the student's process sends is never unpickled. See course/GRADING.md for what is promised.
"""
