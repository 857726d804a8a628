from hypothesis import given, strategies as st

from inferd.limits.accelerator import DEVICE_RESERVE_BYTES
from inferd.worker.llama.memory.offload import (
    Room,
    describe_need,
    fits,
    most_layers,
)

MIB = 2**20
BYTES = st.integers(min_value=0, max_value=2**40)


@st.composite
def devices_and_layers(draw):
    """Devices, and what each of some layers adds on each of them."""
    n_devices = draw(st.integers(min_value=1, max_value=3))
    rooms = [Room(key, f"D{key}", draw(BYTES)) for key in range(n_devices)]
    n_layers = draw(st.integers(min_value=0, max_value=200))
    first = draw(st.lists(BYTES, min_size=n_devices, max_size=n_devices))
    each = draw(st.lists(BYTES, min_size=n_devices, max_size=n_devices))

    def need(n_on_device):
        if not n_on_device:
            return {}
        return {
            room.handle: first[room.handle] + n_on_device * each[room.handle]
            for room in rooms
        }

    return rooms, n_layers, need


@given(devices_and_layers())
def test_as_many_layers_as_fit_are_found_in_few_predictions(case):
    rooms, n_layers, need = case
    asked = []

    def predict(n):
        asked.append(n)
        return need(n)

    found = most_layers(predict, n_layers, rooms)
    assert found == 0 or fits(need(found), rooms)
    assert found == n_layers or not fits(need(found + 1), rooms)
    assert len(asked) <= n_layers.bit_length()


def test_the_reserve_of_each_device_stays_free():
    room = Room(1, "D", DEVICE_RESERVE_BYTES + 10)
    assert fits({1: 10}, [room])
    assert not fits({1: 11}, [room])
    assert fits({1: DEVICE_RESERVE_BYTES + 10}, [room], reserve_bytes=0)


def test_what_another_device_would_hold_does_not_fit():
    room = Room(1, "D", 2**40)
    assert not fits({1: 10, 2: 1}, [room])
    assert fits({1: 10, 2: 0}, [room])


def test_the_numbers_of_each_device_are_told():
    rooms = [Room(1, "CUDA0", 100 * MIB), Room(2, "CUDA1", 7 * MIB)]
    assert describe_need({1: 120 * MIB}, rooms) == (
        "CUDA0 has 100 MiB free, 120 needed, CUDA1 has 7 MiB free, 0 needed"
    )
