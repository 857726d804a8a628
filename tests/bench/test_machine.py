from bench.machine import cpu

CPUINFO = (
    "processor\t: 0\nmodel name\t: A Chip: fast\nflags\t\t: fpu avx2\n\n"
    "processor\t: 1\nmodel name\t: Another\n"
)


def test_the_first_core_is_described():
    assert cpu(CPUINFO) == {"cpu": "A Chip: fast", "cpu_flags": "fpu avx2"}


def test_a_kernel_that_tells_little_is_no_failure():
    assert cpu("") == {}
