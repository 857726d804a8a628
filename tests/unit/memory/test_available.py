import pytest

from inferd.memory.available import UNBOUNDED, GroupLimit, available_bytes, group_limit

MIB = 1024 * 1024
NO_BOUND = "9223372036854771712"


@pytest.fixture
def machine(tmp_path):
    """Write what a kernel would say; ask."""

    class Machine:
        proc, groups = tmp_path / "proc", tmp_path / "cgroup"

        def write(self, path: str, text: object) -> None:
            file = tmp_path / path
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(f"{text}\n")

        def group(self, path: str, limit: object, usage: int, **stat: int) -> None:
            self.write(f"cgroup/{path}/memory.max", limit)
            self.write(f"cgroup/{path}/memory.current", usage)
            lines = [f"{name} {number}" for name, number in stat.items()]
            self.write(f"cgroup/{path}/memory.stat", "\n".join(lines))

        def available(self) -> int:
            return available_bytes(self.proc, self.groups)

        def limit(self) -> GroupLimit | None:
            return group_limit(self.proc, self.groups)

    made = Machine()
    made.write("proc/meminfo", "MemTotal: 9 kB\nMemAvailable:  4096 kB\nHugePages: 0")
    return made


def test_a_machine_without_groups_has_what_the_kernel_calls_available(machine):
    assert machine.available() == 4096 * 1024


def test_without_numbers_from_the_kernel_there_is_no_bound(tmp_path):
    assert available_bytes(tmp_path, tmp_path) == UNBOUNDED


def test_a_group_leaves_its_limit_less_unreclaimable_memory(machine):
    machine.write("proc/self/cgroup", "0::/inferd")
    machine.group("inferd", 3 * MIB, 2 * MIB, active_file=500, inactive_file=24, anon=9)
    assert machine.available() == MIB + 524


def test_the_tightest_of_the_groups_above_counts(machine):
    machine.write("proc/self/cgroup", "0::/a/b/c")
    machine.group("a", 2 * MIB, MIB)
    machine.group("a/b", "max", MIB)
    machine.group("a/b/c", 4 * MIB, MIB)
    assert machine.available() == MIB


def test_the_group_that_leaves_least_is_named(machine):
    assert machine.limit() is None
    machine.write("proc/self/cgroup", "0::/a/b")
    assert machine.limit() is None
    machine.group("", "max", 0)
    machine.group("a", 2 * MIB, MIB)
    machine.group("a/b", 4 * MIB, MIB)
    assert machine.limit() == GroupLimit("/a", MIB)
    machine.group("", MIB // 2, 0)
    assert machine.limit() == GroupLimit("/", MIB // 2)


def test_a_group_over_its_limit_leaves_nothing(machine):
    machine.write("proc/self/cgroup", "0::/")
    machine.group("", MIB, 2 * MIB)
    assert machine.available() == 0


@pytest.mark.parametrize(("limit", "left"), [(2 * MIB, MIB + 70), (NO_BOUND, 4 * MIB)])
def test_the_old_groups_are_read_too(machine, limit, left):
    machine.write("proc/self/cgroup", "5:cpu,memory:/x\n4:pids:/y\n0::/")
    machine.write("cgroup/memory/x/memory.limit_in_bytes", limit)
    machine.write("cgroup/memory/x/memory.usage_in_bytes", MIB)
    stat = "inactive_file 1\ntotal_inactive_file 30\ntotal_active_file 40"
    machine.write("cgroup/memory/x/memory.stat", stat)
    assert machine.available() == left


def test_in_a_container_the_group_that_can_be_seen_counts(machine):
    machine.write("proc/self/cgroup", "0::/docker/0123")
    machine.group("", 2 * MIB, MIB)
    assert machine.available() == MIB


def test_this_machine_has_some():
    assert 0 < available_bytes() < UNBOUNDED
