from importlib.resources import files


def test_type_checkers_of_users_read_our_annotations():
    assert (files("inferd") / "py.typed").is_file()
