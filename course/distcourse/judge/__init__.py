"""Judge answers in a separate process: the check runs here, the student's functions run elsewhere.

Grading runs a submission in one process (the *student's*) and its checks in another (the *judge's*). In the judge, the
names that the submission defines are `Remote` objects: a call sends the arguments over a socket, waits, and returns
what came back. So a verdict is made where none of the student's code runs, and a check reads as in the notebook.

Results alone, computed on the student's side by a simulated world of its own, would not do. Of the 75 checks, 16 pass
communicators of simulated ranks to an answer (lab 00: `mean_over_ranks`, `swap`; 06: all but `seconds`; 07:
`data_parallel_step`, `overlapped_backward`, `local_sgd`; 08: `compressed_all_reduce`, `diloco_round`; 09: `typed`,
`layers`; 11: `async_sgd`; 15: `ring_attend`). They count messages, averagings and simulated seconds, or play the other
ranks, and the student's process could make up what it says about its own messages. Six pass functions (01:
`numeric_gradient`; 10: `run_stage`; 11: `delayed_descent`; three of those above). Objects of the library are copied,
but share arrays that answers change in place: a bucket's gradients are views of one array.

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
