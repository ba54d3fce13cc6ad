"""Airflow: a notebook by PapermillOperator, then its thresholds as a gate.

Takes apache-airflow-providers-papermill, apache-airflow-providers-standard and accelerated-workbench in the workers'
environment, and WORKBENCH_OUT, the folder of the runs, in their environment variables. The notebook makes a run there;
the gate fails the DAG when the newest run of that notebook is invalid or past a threshold.
"""

from __future__ import annotations

from datetime import datetime, timedelta

from airflow.providers.papermill.operators.papermill import PapermillOperator
from airflow.providers.standard.operators.bash import BashOperator
from airflow.sdk import DAG

PROJECT = "/opt/bench"  # laid out by: workbench init /opt/bench
EVENT_LOG = "/data/logs/nightly.zstd"

with DAG(
    dag_id="workbench_nightly",
    schedule="30 2 * * *",
    start_date=datetime(2026, 1, 1),
    catchup=False,
    max_active_runs=1,
    default_args={"retries": 0, "execution_timeout": timedelta(hours=1)},
) as dag:
    profile = PapermillOperator(
        task_id="profile",
        input_nb=f"{PROJECT}/notebooks/08_profile.ipynb",
        output_nb="/data/executed/profile-{{ ds }}.ipynb",
        parameters={"event_log": EVENT_LOG},
        kernel_name="python3",
    )
    gate = BashOperator(
        task_id="gate",
        bash_command=f"workbench runs check profile --thresholds {PROJECT}/thresholds.yaml",
    )
    profile >> gate
