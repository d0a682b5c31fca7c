"""What the DAG files share. It knows Airflow and `pipelines.steps`, and nothing below the steps.

`defaults` (arguments of all DAGs) · `retries` (which error is retried) · `assets` (what DAGs tell each other) ·
`operators`, `sensors`, `triggers` (tasks that wait without holding a worker) · `links` (from a task to its report or
its MLflow run, and back) · `pages` (what Airflow's server shows for us).
"""
