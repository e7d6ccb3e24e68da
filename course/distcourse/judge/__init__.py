"""Judge answers in a separate process: the check runs here, the student's functions run elsewhere.

Grading runs a submission in one process (the *student's*) and its checks in another (the *judge's*). In the judge, the
names that the submission defines are `Remote` objects: a call sends the arguments over a socket, waits, and returns
what came back. So a verdict is made where none of the student's code runs, and a check reads as in the notebook.

Results computed on the student's side would not do: a submission can change any function of its process, and then say
what it likes. A wrong array is found by comparison, wherever it was computed. But 16 of the 95 exercises pass
communicators of simulated ranks to an answer (lab 00: `mean_over_ranks`, `swap`; 06: all but `seconds`; 07:
`data_parallel_step`, `overlapped_backward`, `local_sgd`; 08: `compressed_all_reduce`, `diloco_round`; 09: `layers`;
11: `async_sgd`; 12: `step`; 15: `ring_attend`), and count messages, averagings and simulated seconds, or play the other
ranks. In others the result is a verdict on what the answer made, a word that is the same for everybody (05:
`two_layers`; 10: the puzzles; 12: `save`, `attack`, `next_interval`; 13: `plan`; 04: what the emulator found in a
kernel). Four more pass functions (01: `numeric_gradient`; 10: `run_stage`; 11: `delayed_descent`; 14: `search`).
Objects of the library are copied, but share arrays that answers change in place: a bucket's gradients are views.

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
