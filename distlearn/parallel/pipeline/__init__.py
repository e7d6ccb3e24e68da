"""Pipeline parallelism: a model cut into stages, micro-batches that flow through them, in the order of a schedule.

- `schedule`: the text, the orders of the literature, the checker, the simulator
- `stages`: where to cut a model; which rank holds which parameters, shared ones too; messages between stages
- `strategy`: `Pipeline`, equal to serial training; `pipedream`: `PipeDream`, which never runs empty
"""
