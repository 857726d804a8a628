"""Try inferd with an accelerator on a machine without a network, in calls of minutes.

    .venv/bin/python -m tools.accelerator_trial --step archive --backend cuda --work DIR --python 3.12
    python3 -m tools.accelerator_trial --step build --backend cuda --work DIR
    python3 -m tools.accelerator_trial --step test --backend cuda --work DIR
    python3 -m tools.accelerator_trial --step bench --backend cuda --work DIR

`archive` runs where there is a package registry, after `make setup`. It writes `DIR/trial.tar.gz`: this checkout's
last commit, the sources of llama.cpp that a library needs, and the pinned wheels of the
other machine's Python. The other steps run on the machine with the accelerator, in `repository` below
the directory where the archive was unpacked, which is their `--work`:

    tar -xzf trial.tar.gz -C DIR && cd DIR/repository

Each step ends after `--limit-s` seconds with exit status 3 if it is not finished, and goes on
there when it is called again. All add to `DIR/report.json` and `DIR/report.md`: devices, memory,
layers, tests and figures, each beside the processor's own. The model of the figures is made there,
with random weights in the shape of a real one.
"""
