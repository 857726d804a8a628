from bench.fleet.simulation import Habits, Service, by_prefix, in_turns, simulate

SERVICE = Service(
    slots=4,
    prompt_token_s=0.002,
    step_s=0.01,
    step_each_s=0.005,
    cached_conversations=50,
)
HABITS = Habits(think_s=5, turns=4, prompt_tokens=100, answer_tokens=20)


def seen(route, n_users=20, n_machines=4, service=SERVICE):
    return simulate(n_users, n_machines, service, HABITS, route, for_s=200, seed=1)


def test_one_user_waits_for_the_prompt_and_nothing_else():
    alone = seen(by_prefix(), n_users=1, n_machines=1)
    assert all(abs(each - 0.2) < 1e-9 for each in alone.first_s)
    assert alone.n_cached == alone.n_later > 0


def test_kept_conversations_are_in_the_cache_and_others_hardly():
    kept, spread = seen(by_prefix()), seen(in_turns())
    assert kept.n_cached > 0.95 * kept.n_later
    assert spread.n_cached < 0.6 * spread.n_later
    assert sum(kept.first_s) / len(kept.first_s) < sum(spread.first_s) / len(
        spread.first_s
    )


def test_more_users_than_slots_wait():
    few, many = seen(by_prefix(), 10), seen(by_prefix(), 200)
    assert max(many.first_s) > max(few.first_s)
    assert len(many.first_s) > len(few.first_s)
