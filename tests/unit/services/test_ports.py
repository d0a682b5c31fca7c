import socket

import pytest

from pipelines.errors import ServiceError
from pipelines.services.ports import (
    INTERNAL_PORTS,
    PUBLIC_PORTS,
    STORE_ADMIN_GRPC_OFFSET,
    choose_ports,
    is_free,
)

ANY_PORT = dict.fromkeys(PUBLIC_PORTS, 0)


@pytest.fixture
def taken_port():
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield server.getsockname()[1]


def test_every_service_gets_a_port_of_its_own():
    ports = choose_ports(ANY_PORT, {}, {})

    assert set(ports) == {*PUBLIC_PORTS, *INTERNAL_PORTS}
    assert len(set(ports.values())) == len(ports)


def test_a_taken_port_is_refused_with_its_user_and_the_way_out(taken_port):
    with pytest.raises(ServiceError) as refusal:
        choose_ports({**ANY_PORT, "airflow": taken_port}, {}, {})

    message = str(refusal.value)
    assert f"port {taken_port} is in use by process" in message
    assert "--port airflow=" in message
    assert "TRACKSIDE_PORT_AIRFLOW=" in message


def test_a_taken_internal_port_is_replaced_silently(taken_port):
    ports = choose_ports(ANY_PORT, {}, {"ray-gcs": taken_port})

    assert ports["ray-gcs"] != taken_port


def test_internal_ports_stay_the_same_between_runs():
    before = choose_ports(ANY_PORT, {}, {})

    after = choose_ports(ANY_PORT, {}, before)

    assert {name: after[name] for name in INTERNAL_PORTS} == {name: before[name] for name in INTERNAL_PORTS}


def test_an_argument_wins_over_the_environment():
    free = choose_ports(ANY_PORT, {}, {})

    ports = choose_ports(
        {**ANY_PORT, "mlflow": free["mlflow"]}, {"TRACKSIDE_PORT_MLFLOW": "1", "TRACKSIDE_PORT_RAY": "2"}, {}
    )

    assert ports["mlflow"] == free["mlflow"]


def test_the_environment_is_used_where_no_argument_is_given():
    free = choose_ports(ANY_PORT, {}, {})["store"]
    others = {name: 0 for name in PUBLIC_PORTS if name != "store"}

    assert choose_ports(others, {"TRACKSIDE_PORT_STORE": str(free)}, {})["store"] == free


@pytest.mark.parametrize("value", ["eighty", "-1", "65536"])
def test_a_value_that_is_no_port_is_named(value):
    with pytest.raises(ServiceError, match=f"TRACKSIDE_PORT_RAY is '{value}'"):
        choose_ports({}, {"TRACKSIDE_PORT_RAY": value}, {})


def test_an_unknown_service_is_refused():
    with pytest.raises(ServiceError, match="'postgres'"):
        choose_ports({**ANY_PORT, "postgres": 5432}, {}, {})


def test_one_port_for_two_services_is_refused():
    free = choose_ports(ANY_PORT, {}, {})["ray"]

    with pytest.raises(ServiceError, match="asked for twice"):
        choose_ports({**ANY_PORT, "ray": free, "mlflow": free}, {}, {})


def test_a_port_is_free_until_somebody_listens(taken_port):
    assert not is_free(taken_port)


def test_the_second_port_of_the_stores_administration_is_free_too(taken_port):
    previous = {"store-admin": taken_port - STORE_ADMIN_GRPC_OFFSET}

    assert choose_ports(ANY_PORT, {}, previous)["store-admin"] != previous["store-admin"]
