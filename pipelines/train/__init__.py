"""Fit a model with any number of workers, on an engine that may lose some of them.

- `plan`        how many workers, which batch and learning rate, and why
- `loop`        the training loop; knows neither ranks nor engine
- `parallel`    the group of processes that train together
- `checkpoint`  what a killed training resumes from
- `worker`      what one worker does, whoever started it
- `engine`      the same plan in this process, or on Ray
- `jobs`        Ray jobs over REST: submit once, find again
- `follow`      MLflow is kept up to date from the checkpoints
- `goodput`     where the wall time went
- `outcome`     what a training leaves behind
"""
