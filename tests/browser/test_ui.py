"""A person's way through the UIs in a real browser: log in, fill the form, trigger, see success, open the run."""

import os
import re
import shutil
from pathlib import Path

import pytest
from playwright.sync_api import expect, sync_playwright

from pipelines import services as local
from tests.integration.main_job import RETRAIN_DEADLINE_S, airflow_of, connected, publish_here, small_fleet

pytestmark = pytest.mark.services

expect.set_options(timeout=60_000)

FLAGS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]


@pytest.fixture(scope="module", autouse=True)
def connection(services, tmp_path_factory):
    with connected(services.env):
        publish_here(small_fleet(tmp_path_factory.mktemp("fleet")))
        yield


@pytest.fixture(scope="module")
def logins(services):
    return {login.service: login for login in local.credentials(services.home) if login.username == "admin"}


@pytest.fixture
def page(logins):
    browser_path = shutil.which("chromium")
    assert browser_path, "chromium is not on the path; this test needs a real browser"
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=browser_path, args=FLAGS)
        mlflow = {"username": logins["mlflow"].username, "password": logins["mlflow"].password}
        context = browser.new_context(viewport={"width": 1440, "height": 900}, http_credentials=mlflow)
        page = context.new_page()
        page.set_default_timeout(60_000)
        yield page
        browser.close()


def test_a_person_triggers_a_retraining_from_the_form_and_finds_its_run_in_mlflow(services, logins, page):
    login, airflow = logins["airflow"], airflow_of(services.env)
    airflow.unpause("nightly_retrain")
    known = airflow.run_ids("nightly_retrain")

    page.goto(f"{login.url}/dags/nightly_retrain")
    page.locator("input[name=username]").fill(login.username)
    page.locator("input[name=password]").fill(login.password)
    page.locator("button[type=submit]").click()
    page.get_by_test_id("trigger-dag-button").click()
    page.get_by_role("combobox").first.fill("smoke")
    page.keyboard.press("Enter")
    page.locator("input[name=element_epochs]").fill("3")
    _screenshot(page, "trigger-form")
    page.get_by_test_id("trigger-dag-submit").click()
    run_id = _new_run(page, airflow, known)
    for _ in airflow.follow("nightly_retrain", run_id, deadline_s=RETRAIN_DEADLINE_S):
        pass
    page.goto(f"{login.url}/dags/nightly_retrain/runs/{run_id}")
    expect(page.get_by_text(re.compile("^success$", re.IGNORECASE)).first).to_be_visible()
    _screenshot(page, "run")
    page.goto(f"{login.url}/dags/nightly_retrain/runs/{run_id}/tasks/train/details")
    link = page.get_by_role("link", name="MLflow run")
    address = link.get_attribute("href")
    page.goto(address)
    expect(page.get_by_text("train_loss").first).to_be_visible()
    _screenshot(page, "mlflow-run")

    asked = airflow.conf("nightly_retrain", run_id)
    assert (asked["recipe"], asked["epochs"]) == ("smoke", 3)
    assert airflow.state("nightly_retrain", run_id) == "success"


def _new_run(page, airflow, known):
    for _ in range(120):
        if new := airflow.run_ids("nightly_retrain") - known:
            return new.pop()
        page.wait_for_timeout(500)
    raise AssertionError("the form started no run")


def _screenshot(page, name):
    """Keep a picture where TRACKSIDE_SCREENSHOTS says, for the README."""
    if folder := os.environ.get("TRACKSIDE_SCREENSHOTS"):
        page.wait_for_timeout(3000)  # MLflow's page is never idle
        page.screenshot(path=Path(folder) / f"{name}.png")
