"""The final project: three tracks in which data, or one CUDA source, is handed in, and a board that scores it.

    reading --> classifier schedule kernel --> rounds --> board --> page
    (bytes, refused or read)  (a cost and its floor)       (seed, labels)  (the ladder, places)

What teams and staff do is in course/project/.
"""
